"""Parts of targets with the bugs that back ends have had; ``--target-map`` puts them in place.

Each is torch.nn.parallel's own function with one mistake, the kind of which a fault of the
simulator is named after.
"""

import functools
import threading
from typing import Any

import torch
from torch import Tensor, nn

#: Without types of its own.
comm: Any = nn.parallel.comm


def broadcast_to_current(tensor: Tensor, devices: Any = None, *, out: Any = None) -> Any:
    """Take ordinal 0 for the current device."""
    current = torch.accelerator.current_device_index()
    if devices is not None:
        devices = [device or current if isinstance(device, int) else device for device in devices]
    return comm.broadcast(tensor, devices, out=out)


def gather_and_stay(*args: Any, **kwargs: Any) -> Tensor:
    """Leave the destination current."""
    result: Tensor = comm.gather(*args, **kwargs)
    if result.get_device() >= 0:
        torch.accelerator.set_device_index(result.get_device())
    return result


def scatter_by_primitive(
    tensor: Tensor,
    devices: Any = None,
    chunk_sizes: Any = None,
    dim: int = 0,
    streams: Any = None,
    *,
    out: Any = None,
) -> Any:
    """Ask ``torch._C`` for what builds without CUDA lack."""
    if out is not None:
        return comm.scatter(tensor, dim=dim, streams=streams, out=out)
    ordinals = [torch.device(device).index for device in devices]
    return tuple(torch._C._scatter(tensor, ordinals, chunk_sizes, dim, streams))


def reduce_add_to_fresh(inputs: Any, destination: Any = None) -> Tensor:
    """Count on fresh memory to be zero."""
    found: Tensor = comm.reduce_add(inputs, destination)
    if len(inputs) == 1:
        return found
    total = torch.empty_like(found)
    for each in inputs:
        total += each.to(total.device)
    return total


class ScatterToFresh(torch.autograd.Function):
    """Leaves the gradients of chunks that nobody used as memory came."""

    @staticmethod
    def forward(ctx: Any, devices: Any, sizes: Any, dim: int, tensor: Tensor) -> Any:
        """Scatter."""
        ctx.set_materialize_grads(False)
        ctx.dim, ctx.device = dim, tensor.device
        chunks = comm.scatter(tensor, devices, sizes, dim)
        ctx.shapes = [chunk.shape for chunk in chunks]
        return chunks

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        """Join the gradients."""
        parts = [
            torch.empty(shape, device=ctx.device) if grad is None else grad.to(ctx.device)
            for grad, shape in zip(grads, ctx.shapes, strict=True)
        ]
        return None, None, None, torch.cat(parts, ctx.dim)


def gather_without_peers(tensors: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Lose what comes from another device than the first one's."""
    first = tensors[0].device
    arrived = [each if each.device == first else torch.zeros_like(each) for each in tensors]
    result: Tensor = comm.gather(arrived, *args, **kwargs)
    return result


def scatter_to_where_there_is_memory(tensor: Tensor, devices: Any = None, **options: Any) -> Any:
    """Leave everything where it is if a device has no memory left."""
    try:
        return comm.scatter(tensor, devices, **options)
    except torch.OutOfMemoryError:
        return tensor.chunk(len(devices), options.get("dim", 0))


def parallel_apply_of_any_error(modules: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """Hide the class of what went wrong."""
    try:
        return list(nn.parallel.parallel_apply(modules, *args, **kwargs))
    except RuntimeError as error:
        raise RuntimeError(f"{error}") from None


def parallel_apply_on_default_streams(
    modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None
) -> list[Any]:
    """Start threads, and leave the caller's streams behind (PyTorch 1.11, #78824)."""
    results: list[Any] = [None] * len(modules)

    def run(place: int) -> None:
        torch.accelerator.set_device_index(torch.device(devices[place]).index)
        given = inputs[place]
        results[place] = modules[place](*(given if isinstance(given, tuple) else (given,)))

    for place in range(len(modules)):
        thread = threading.Thread(target=run, args=(place,))
        thread.start()
        thread.join()
    return results


class ScatterWithoutWait:
    """Sends on side streams that nobody waits for (PyTorch 1.0, #16966)."""

    @staticmethod
    def apply(devices: Any, sizes: Any, dim: int, tensor: Tensor) -> tuple[Tensor, ...]:
        """Scatter a tensor of the CPU."""
        sent = [
            _sent(*each) for each in zip(tensor.chunk(len(devices), dim), devices, strict=True)
        ]
        for chunk in sent:
            chunk.record_stream(torch.accelerator.current_stream(chunk.device))
        return tuple(sent)


class ScatterWithoutRecord:
    """Waits for its side streams, and lets them have the memory at once (#18465)."""

    @staticmethod
    def apply(devices: Any, sizes: Any, dim: int, tensor: Tensor) -> tuple[Tensor, ...]:
        """Scatter a tensor of the CPU."""
        sent = [
            _sent(*each) for each in zip(tensor.chunk(len(devices), dim), devices, strict=True)
        ]
        for chunk in sent:
            torch.accelerator.current_stream(chunk.device).wait_stream(_beside(chunk.device))
        return tuple(sent)


@functools.cache
def _beside(device: torch.device) -> torch.Stream:
    return torch.Stream(device)


def _sent(chunk: Tensor, device: torch.device) -> Tensor:
    with _beside(device):
        return chunk.detach().to(device, non_blocking=True)
