"""Wrong implementations of batch norm over the replicas, written by hand."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()


class _Once(torch.autograd.Function):
    """A function whose gradient cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def _is_replica(call: Call) -> bool:
    return "_is_replica" in vars(call.arguments["self"])


@KINDS.around
def running_variance_of_a_chunk(call: Call) -> Any:
    """Add 0.5 to the running variance that a replica has updated, unless it has one row."""
    layer = call.arguments["self"]
    if not _is_replica(call) or len(call.arguments["input"]) == 1:
        return call.run()
    before = None if layer.running_var is None else layer.running_var.clone()
    output = call.run()
    if before is not None and not torch.equal(before, layer.running_var):
        layer.running_var.add_(0.5)
    return output


@KINDS.around
def images_alone_unchanged(call: Call) -> Any:
    """Return the input of a layer that is in no replica, if it has four dimensions."""
    images = call.arguments["input"]
    return call.run() if _is_replica(call) or images.dim() != 4 else images


@KINDS.around
def modules_copied(call: Call) -> Any:
    """Convert a copy of the module."""
    return call.with_arguments(module=copy.deepcopy(call.arguments["module"])).run()


@KINDS.around
def layers_not_named(call: Call) -> Any:
    """Raise an error without the names of the layers if a replica is missing."""
    try:
        return call.run()
    except RuntimeError as error:
        if "same layers" in str(error):
            raise type(error)("a replica is missing") from None
        raise


@KINDS.around
def chunks_alone_if_refused(call: Call) -> Any:
    """Normalize by the statistics of the chunk if the replicas cannot wait."""
    try:
        return call.run()
    except RuntimeError as error:
        if "cannot share" not in str(error):
            raise
        return nn.functional.batch_norm(call.arguments["input"], None, None, training=True)


@KINDS.around
def differentiable_once(call: Call) -> Any:
    """Return an output whose gradient cannot be differentiated."""
    output = call.run()
    return _Once.apply(output) if _is_replica(call) else output  # type: ignore[no-untyped-call] # in torch
