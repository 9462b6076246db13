"""Replicas whose tensors are leaves of the autograd graph, so that each has its own backward."""

from collections.abc import Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from .._comm import attached_copies, detached
from .._compat import version_counters


class ReplicaLeaves:
    """The leaves that take the place of the copies of one call of ``replicate``."""

    def __init__(self) -> None:
        self._copies: list[Tensor] = []
        self._leaves: list[Tensor] = []
        #: The tensors that several replicas share, and their versions.
        self._shared: tuple[Sequence[Tensor], list[object]] = ((), [])

    def rows(
        self, tensors: Sequence[Tensor], targets: Sequence[torch.device], buffer_size: int
    ) -> list[list[Tensor]]:
        """Return a list of leaves for each of ``targets``; the first one has ``tensors``.

        Leaves on the device of ``tensors`` share their memory.
        """
        source = targets[0]
        if targets.count(source) > 1:
            self._shared = tensors, version_counters(tensors)
        others = [target for target in targets if target != source]
        copies: Iterator[Sequence[Tensor]] = iter(())
        if others:
            copies = iter(attached_copies(tensors, [source, *others], buffer_size=buffer_size)[1:])
        rows = [tensors if target == source else next(copies) for target in targets]
        return [[self._add(copy) for copy in row] for row in rows]

    def check_shared(self, network: nn.Module) -> None:
        """Raise RuntimeError if a replica has changed a tensor that other replicas share."""
        tensors, versions = self._shared
        for tensor, old, new in zip(tensors, versions, version_counters(tensors), strict=True):
            if old != new:
                members = chain(network.named_parameters(), network.named_buffers())
                name = next(name for name, each in members if each is tensor)
                raise RuntimeError(
                    f"A replica changed parameter {name!r} in place, and the replicas on "
                    f"{tensor.device} share its memory: call the wrapper and loss.backward() "
                    "instead"
                )

    def pass_gradients(self) -> None:
        """Pass the gradients of the leaves to the tensors that were copied, and free them."""
        copies, gradients = [], []
        for copy, leaf in zip(self._copies, self._leaves, strict=True):
            if leaf.grad is not None:
                copies.append(copy)
                gradients.append(leaf.grad)
                leaf.grad = None
        self._copies, self._leaves = [], []
        if gradients:
            torch.autograd.backward(copies, gradients)

    def _add(self, copy: Tensor) -> Tensor:
        leaf = detached(copy, copy)
        if copy.requires_grad:
            self._copies.append(copy)
            self._leaves.append(leaf.requires_grad_())
        return leaf
