"""Outputs of a call put together from what all ranks have returned."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._arguments import Survey
from ._crossings import Begin, Exit
from ._nested import Leaf
from ._parcels import Label, as_bytes, from_bytes, label, size_in_bytes, unpack
from ._processes import Ranks
from ._reports import Report, Returned

__all__ = ["Way", "collect", "own_part", "single"]


class Way:
    """The way of gradients from outputs back into a rank's part.

    Args:
        begin: What is to be called first in backward.
        scale: What gradients of this rank's outputs are multiplied by.
        thread: What leads to the arguments.
        leaves: What backward is to reach afterwards only.
        device: Where this rank computes.
    """

    def __init__(
        self,
        begin: Begin,
        scale: int,
        thread: Tensor | None,
        leaves: Sequence[Tensor],
        device: torch.device,
    ) -> None:
        self._begin = begin
        self._scale = scale
        self._thread = thread
        self._leaves = leaves
        self._home = device

    def over(self, tensors: Sequence[Tensor], labels: Sequence[Label], own: range) -> list[Tensor]:
        """Give ``tensors``, of which ``own`` are this rank's, with gradients as ``labels`` say."""
        found = list(tensors)
        wanted = [index for index, its in enumerate(labels) if its.requires_grad]
        if not wanted or not torch.is_grad_enabled():
            return found
        mine = [index for index, which in enumerate(wanted) if which in own]
        probe = torch.zeros((), device=self._home, requires_grad=True)
        outputs = Exit.apply(  # type: ignore[no-untyped-call] # torch leaves it untyped
            self._begin,
            range(mine[0], mine[-1] + 1) if mine else range(0),
            self._scale,
            probe,
            self._thread,
            len(wanted),
            *(found[index] for index in wanted),
            *self._leaves,
        )
        for index, output in zip(wanted, outputs, strict=True):
            found[index] = output
        return found

    def without_rows(self, its: Label, dim: int) -> Tensor:
        """Give a tensor such as ``its``, but without rows along ``dim``."""
        shape = list(its.shape) or [0]
        shape[dim if its.shape else 0] = 0
        return torch.empty(shape, dtype=its.dtype, device="cpu" if its.on_cpu else self._home)


def single(output: Any, way: Way) -> Any:
    """Give the output of the only rank as it is, with its tensors on their way."""
    survey = Survey()
    root = survey.take(output, None, "output")
    tensors = [leaf.tensor for leaf in survey.copied]
    labels = [label(tensor) for tensor in tensors]
    outputs = way.over(tensors, labels, range(len(tensors)))
    pieces: dict[Leaf, list[Tensor]] = {
        leaf: [output] for leaf, output in zip(survey.copied, outputs, strict=True)
    }
    return root.columns(1, pieces)[0]


def collect(
    reports: Sequence[Report],
    tensors: Sequence[Tensor],
    ranks: Ranks,
    way: Way,
    device: torch.device,
) -> list[Any]:
    """Give the outputs of all ranks that have returned, in order.

    Args:
        reports: What each rank reports; none has failed.
        tensors: Those of this rank's output.
        ranks: The ranks.
        way: The way of gradients.
        device: Where the tensors of other ranks go, those on the CPU excepted.
    """
    returned = {rank: each for rank, each in enumerate(reports) if isinstance(each, Returned)}
    size = max(size_in_bytes(each.labels, ranks.wire) for each in returned.values())
    own_bytes = as_bytes(tensors, size, ranks.wire)
    rows = ranks.gather_bytes(own_bytes) if size else [own_bytes] * ranks.size
    pieces: list[Tensor] = []
    own = range(0)
    for rank, each in returned.items():
        if rank == ranks.rank:
            own = range(len(pieces), len(pieces) + len(tensors))
            pieces += tensors
        else:
            pieces += _placed(rows[rank], each.labels, device)
    labels = [its for each in returned.values() for its in each.labels]
    ordered = iter(way.over(pieces, labels, own))
    return [
        unpack(each.skeleton, [next(ordered) for _ in each.labels]) for each in returned.values()
    ]


def own_part(
    reports: Sequence[Report], tensors: Sequence[Tensor], rank: int, way: Way, dim: int
) -> Any:
    """Give this rank's output; on an idle rank the first rank's, with tensors without rows."""
    first = next(each for each in reports if isinstance(each, Returned))
    own = reports[rank]
    if isinstance(own, Returned):
        return unpack(own.skeleton, way.over(tensors, own.labels, range(len(tensors))))
    empty = [way.without_rows(its, dim) for its in first.labels]
    return unpack(first.skeleton, way.over(empty, first.labels, range(0)))


def _placed(row: Tensor, labels: Sequence[Label], device: torch.device) -> list[Tensor]:
    return [
        part.to("cpu" if its.on_cpu else device)
        for part, its in zip(from_bytes(row, labels), labels, strict=True)
    ]
