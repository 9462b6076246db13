"""Autograd functions at the boundary of the region that each rank computes for itself.

    inputs -- EnterParallelRegion --> chunk -- module -- ExitParallelRegion --> all outputs

Every rank computes the same loss from the outputs of all ranks. The gradient of a rank's outputs
is therefore a slice of the incoming gradients, and the exit communicates nothing. The
gradient that reaches the entry is one of ``k`` summands, where ``k`` is the number of ranks, so
the entry all-reduces it.

Inside the region gradients are ``k`` times as large as in one process, because those of
parameters are averaged over the ranks, not summed. A sum would count gradients that are equal on
every rank ``k`` times: those of a penalty on parameters, and the one already in ``grad``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .._compat import has_hooks
from .process_group import Communicator

#: Receives the sentinel of :class:`ExitParallelRegion` when backward starts.
PrepareBackward = Callable[[Tensor], None]


class EnterParallelRegion(Function):
    """Identity on the inputs of all ranks; its backward all-reduces their gradients.

    The first output is a dummy scalar. It keeps this node in the graph of ranks that do not use
    the inputs, so that they still join the all-reduce.

    Autograd runs the youngest ready node first, and this node is the oldest of a call. If all
    nodes are on one device, its all-reduces therefore begin after those of the parameters on
    every rank. Collectives of one process group need the same order on all ranks.
    """

    @staticmethod
    def forward(ctx: Any, comm: Communicator, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the graph anchor, then ``tensors``, all of which require gradients."""
        ctx.set_materialize_grads(False)
        ctx.comm = comm
        ctx.inputs = [tensor.detach() for tensor in tensors]
        graph_anchor = tensors[0].new_zeros(())
        return (graph_anchor, *(tensor.view_as(tensor) for tensor in tensors))

    @staticmethod
    def backward(ctx: Any, _: Tensor | None, *grads: Tensor | None) -> Any:
        """All-reduce each gradient that some rank has."""
        return None, *_all_reduce_mean(ctx.comm, grads, ctx.inputs)


class ExitParallelRegion(Function):
    """Identity on the outputs of all ranks; its backward keeps the gradients of local outputs."""

    @staticmethod
    def forward(
        ctx: Any,
        prepare: PrepareBackward,
        local: range,
        scale: int,
        sentinel: Tensor,
        graph_anchor: Tensor | None,
        num_outputs: int,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        """Return the outputs.

        Args:
            ctx: The autograd context.
            prepare: The function that backward calls first, with ``sentinel``.
            local: The indices of this rank's outputs.
            scale: The factor of their gradients.
            sentinel: A leaf that belongs to this call only.
            graph_anchor: The dummy scalar of :class:`EnterParallelRegion`, if an input requires
                a gradient.
            num_outputs: The number of outputs.
            tensors: The outputs, then the leaves that backward must reach after this node only.
        """
        ctx.set_materialize_grads(False)
        ctx.prepare, ctx.local, ctx.scale, ctx.sentinel = prepare, local, scale, sentinel
        ctx.graph_anchor = None if graph_anchor is None else graph_anchor.detach()
        ctx.leaves = tensors[num_outputs:]
        return tuple(tensor.view_as(tensor) for tensor in tensors[:num_outputs])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        """Return the scaled gradients of this rank's outputs."""
        ctx.prepare(ctx.sentinel)
        scaled = [
            grad * ctx.scale if grad is not None and index in ctx.local else None
            for index, grad in enumerate(grads)
        ]
        empty = [_empty_gradient(leaf) for leaf in ctx.leaves]
        sentinel_grad = torch.zeros_like(ctx.sentinel)
        return None, None, None, sentinel_grad, ctx.graph_anchor, None, *scaled, *empty


def _empty_gradient(leaf: Tensor) -> Tensor | None:
    """Return None, or zeros for a leaf with hooks: they must not be called with None."""
    return torch.zeros_like(leaf) if has_hooks(leaf) else None


def _all_reduce_mean(
    comm: Communicator, grads: Sequence[Tensor | None], inputs: Sequence[Tensor]
) -> list[Tensor | None]:
    has_grad = comm.all_gather_object([grad is not None for grad in grads])
    means: list[Tensor | None] = []
    for grad, tensor, *has_grad_on_rank in zip(grads, inputs, *has_grad, strict=True):
        total = torch.zeros_like(tensor) if grad is None else grad.clone()
        if any(has_grad_on_rank):
            reduced = total.to(comm.comm_device)
            comm.all_reduce(reduced)
            total = reduced.to(total.device) / comm.size
        means.append(total if any(has_grad_on_rank) else None)
    return means
