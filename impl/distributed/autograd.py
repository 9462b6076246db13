"""Gradients between what all ranks compute and the part that one of them does.

    arguments  -- Entry -->  the rank's part  --  module  --  Exit -->  outputs of all ranks

Every rank computes the same loss from the outputs of all ranks, so the gradient of its own part
is a slice of what arrives there: nothing has to be sent. What leaves a part towards the
arguments is one summand of ``k``, the number of ranks, and is summed.

Between Exit and Entry gradients are ``k`` times as large as in one process, since those of
parameters are averaged over the ranks, not summed. So what a loss, the same on every rank, adds
to the gradient of a parameter beside the module is not counted ``k`` times, nor is the gradient
that was there before.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .._compat import has_hooks
from .process_group import Ranks

__all__ = ["Entry", "Exit"]

Begin = Callable[[Tensor], None]


class Entry(Function):
    """Arguments of one rank's part; in backward the sums of their gradients over all ranks.

    Its first output has no value: through it gradients get here on ranks, too, whose part has no
    use for the arguments.

    Of the nodes that are ready autograd takes the youngest first, and this is the oldest of a
    call. So these sums begin after those of the parameters, on every rank, as they must in one
    group, if all nodes are on one device.
    """

    @staticmethod
    def forward(ctx: Any, ranks: Ranks, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Give a thread to Exit, and ``tensors``, all of which require gradients."""
        ctx.set_materialize_grads(False)
        ctx.ranks = ranks
        ctx.like = [tensor.detach() for tensor in tensors]
        thread = tensors[0].new_zeros(())
        return (thread, *(tensor.view_as(tensor) for tensor in tensors))

    @staticmethod
    def backward(ctx: Any, _: Tensor | None, *grads: Tensor | None) -> Any:
        """Sum each gradient that any rank has."""
        return None, *_averaged(ctx.ranks, grads, ctx.like)


class Exit(Function):
    """Tensors of the outputs of all ranks, of which one rank's are its own."""

    @staticmethod
    def forward(
        ctx: Any,
        begin: Begin,
        own: range,
        scale: int,
        probe: Tensor,
        thread: Tensor | None,
        count: int,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        """Give the outputs.

        Args:
            ctx: The context of backward.
            begin: What is to be called first in backward, with ``probe``.
            own: Which of the outputs are this rank's.
            scale: What their gradients are multiplied by.
            probe: A leaf that nobody else knows.
            thread: What Entry gave, if anything has entered.
            count: The number of outputs.
            tensors: The outputs, then leaves that backward is to reach after this only.
        """
        ctx.set_materialize_grads(False)
        ctx.begin, ctx.own, ctx.scale, ctx.probe = begin, own, scale, probe
        ctx.thread = None if thread is None else thread.detach()
        ctx.leaves = tensors[count:]
        return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        """Hand on the gradients of this rank's outputs."""
        ctx.begin(ctx.probe)
        scaled = [
            grad * ctx.scale if grad is not None and position in ctx.own else None
            for position, grad in enumerate(grads)
        ]
        nothing = [_nothing(leaf) for leaf in ctx.leaves]
        return None, None, None, torch.zeros_like(ctx.probe), ctx.thread, None, *scaled, *nothing


def _nothing(leaf: Tensor) -> Tensor | None:
    """Give no gradient; but a hook of the caller's must not be called with None."""
    return torch.zeros_like(leaf) if has_hooks(leaf) else None


def _averaged(
    ranks: Ranks, grads: Sequence[Tensor | None], like: Sequence[Tensor]
) -> list[Tensor | None]:
    present = ranks.exchange([grad is not None for grad in grads])
    found: list[Tensor | None] = []
    for grad, tensor, *had in zip(grads, like, *present, strict=True):
        total = torch.zeros_like(tensor) if grad is None else grad.clone()
        if any(had):
            on_wire = total.to(ranks.wire)
            ranks.sum(on_wire)
            total = on_wire.to(total.device) / ranks.size
        found.append(total if any(had) else None)
    return found
