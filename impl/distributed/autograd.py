"""Autograd Functions before and after the module, which each rank runs on its own chunk.

    inputs ─► EnterParallelRegion ─► chunk ─► module ─► ExitParallelRegion ─► outputs of all ranks

The parallel region is the graph between the two Functions. ``k`` is the number of ranks.

Every rank computes the same loss from the outputs of all ranks. In backward,
``ExitParallelRegion`` therefore keeps the gradients of this rank's outputs, without communication.
``EnterParallelRegion`` gets the gradients of this rank's chunk, and all-reduces the gradients of
the inputs.

Inside the region gradients are ``k`` times as large as in one process, because the gradients of
parameters are averaged over the ranks, not summed. A sum would count gradients that are equal on
every rank ``k`` times: the gradient of a penalty on parameters, and the value that ``grad`` had
before backward.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .._torch_private import have_hooks_or_history
from .process_group import Communicator

#: A function that :class:`ExitParallelRegion` calls with its sentinel when backward starts.
PrepareBackward = Callable[[Tensor], None]


class EnterParallelRegion(Function):
    """A Function that returns its inputs. Backward averages their gradients over the ranks.

    The first output is a dummy scalar, the graph anchor. A rank that does not use the inputs uses
    the anchor, so its backward runs this node, too, and joins the all-reduces.

    Autograd runs the newest ready node first, and this node is the oldest node of a call. If all
    nodes are on one device, the all-reduces of this node therefore begin after the all-reduces of
    the parameters on every rank. Collectives of one process group need the same order on all
    ranks.
    """

    @staticmethod
    def forward(ctx: Any, communicator: Communicator, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the graph anchor, then ``tensors``, all of which require gradients."""
        ctx.set_materialize_grads(False)
        ctx.communicator = communicator
        ctx.inputs = [tensor.detach() for tensor in tensors]
        graph_anchor = tensors[0].new_zeros(())
        return (graph_anchor, *(tensor.view_as(tensor) for tensor in tensors))

    @staticmethod
    def backward(ctx: Any, _: Tensor | None, *grads: Tensor | None) -> Any:
        """Average each gradient over the ranks, if any rank has this gradient."""
        communicator = ctx.communicator
        has_grad = communicator.all_gather_object([grad is not None for grad in grads])
        means: list[Tensor | None] = []
        for grad, tensor, *has_grad_on_rank in zip(grads, ctx.inputs, *has_grad, strict=True):
            # A gradient that only other ranks have counts as zeros.
            total = torch.zeros_like(tensor) if grad is None else grad.clone()
            if any(has_grad_on_rank):
                reduced = total.to(communicator.comm_device)
                communicator.all_reduce(reduced)
                means.append(reduced.to(total.device) / communicator.size)
            else:
                means.append(None)
        return None, *means


class ExitParallelRegion(Function):
    """A Function that returns its inputs. Backward keeps the gradients of this rank's outputs."""

    @staticmethod
    def forward(
        ctx: Any,
        prepare: PrepareBackward,
        local_indices: set[int],
        scale: int,
        sentinel: Tensor,
        graph_anchor: Tensor | None,
        num_outputs: int,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        """Return the outputs: the first ``num_outputs`` of ``tensors``.

        The other tensors are leaves that backward may reach only after this node. Backward first
        calls ``prepare`` with ``sentinel``, a leaf of this call only. Backward then multiplies the
        gradients of this rank's outputs, which are at ``local_indices``, by ``scale``. The
        ``graph_anchor`` is None if no input requires a gradient.
        """
        ctx.set_materialize_grads(False)
        ctx.prepare, ctx.local, ctx.scale, ctx.sentinel = prepare, local_indices, scale, sentinel
        ctx.graph_anchor = None if graph_anchor is None else graph_anchor.detach()
        ctx.leaves = tensors[num_outputs:]
        return tuple([tensor.view_as(tensor) for tensor in tensors[:num_outputs]])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        """Return the scaled gradients of this rank's outputs."""
        ctx.prepare(ctx.sentinel)
        scaled = [
            grad * ctx.scale if grad is not None and index in ctx.local else None
            for index, grad in enumerate(grads)
        ]
        # Hooks of a leaf cannot handle None.
        pairs = zip(ctx.leaves, have_hooks_or_history(ctx.leaves), strict=True)
        empty = [torch.zeros_like(leaf) if has_hooks else None for leaf, has_hooks in pairs]
        sentinel_grad = torch.zeros_like(ctx.sentinel)
        return None, None, None, sentinel_grad, ctx.graph_anchor, None, *scaled, *empty
