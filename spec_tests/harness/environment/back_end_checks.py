"""The functions that try one feature of a back end each.

A function raises `WrongResultError` if a result is wrong. Any other exception means that the back
end lacks the feature.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "Devices",
    "WrongResultError",
    "check_autocast",
    "check_availability",
    "check_backward",
    "check_backward_over_devices",
    "check_channels_last",
    "check_copies_between_devices",
    "check_copies_from_views",
    "check_count",
    "check_current_device",
    "check_current_stream",
    "check_distinct_streams",
    "check_events",
    "check_generators",
    "check_kept_parameters",
    "check_new_streams",
    "check_new_tensors",
    "check_pinned_memory",
    "check_record_stream",
    "check_seeds",
    "check_sparse",
    "check_stream_waits",
    "check_strided_writes",
    "check_synchronize",
]

Devices = Sequence[torch.device]


class WrongResultError(Exception):
    """The result of a function of the back end is wrong."""


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise WrongResultError(text)


def _module(devices: Devices) -> Any:
    return torch.get_device_module(devices[0])


def check_availability(devices: Devices) -> None:
    """Try ``is_available``."""
    _require(_module(devices).is_available() is True, "is_available() is not True")


def check_count(devices: Devices) -> None:
    """Try ``device_count``, which must include all ``devices``."""
    count = _module(devices).device_count()
    _require(count > max(device.index for device in devices), f"device_count() is {count}")


def check_current_device(devices: Devices) -> None:
    """Make each device current."""
    before = torch.accelerator.current_device_index()
    try:
        for device in devices:
            torch.accelerator.set_device_index(device.index)
            found = torch.accelerator.current_device_index()
            _require(found == device.index, f"after set_device_index({device.index}): {found}")
    finally:
        torch.accelerator.set_device_index(before)


def check_new_tensors(devices: Devices) -> None:
    """Create a tensor on each device."""
    for device in devices:
        tensor = torch.ones(3, device=device)
        _require(tensor.device == device, f"a tensor for {device} is on {tensor.device}")
        _require(tensor.tolist() == [1.0] * 3, f"torch.ones on {device} is {tensor.tolist()}")


def check_copies_between_devices(devices: Devices) -> None:
    """Copy a tensor from each device to each other device."""
    expected = torch.arange(1000.0)
    for source, target in itertools.permutations(devices, 2):
        copy = expected.to(source).to(target)
        _require(copy.device == target, f"a copy to {target} is on {copy.device}")
        _require(torch.equal(copy.cpu(), expected), f"{source} to {target}: other values")


def check_copies_from_views(devices: Devices) -> None:
    """Copy transposed tensors to a device and to the CPU."""
    matrix = torch.arange(12.0).reshape(3, 4)
    for copy in (matrix.to(devices[0]).t().cpu(), matrix.t().to(devices[0]).cpu()):
        _require(torch.equal(copy, matrix.t()), f"the copy of a transposed tensor is {copy}")


def check_strided_writes(devices: Devices) -> None:
    """Write to parts of tensors, and compare them with tensors on the CPU."""
    vector, matrix = torch.zeros(5), torch.zeros(3, 4)
    on_device = vector.to(devices[0]), matrix.to(devices[0])
    for a, b in ((vector, matrix), on_device):
        a[2:].fill_(-1)
        b[:, 1].fill_(2)
        b[1:, 2:].copy_(torch.ones(2, 2, device=b.device))
        b.t()[3].add_(5)
    for expected, found in zip((vector, matrix), on_device, strict=True):
        _require(
            torch.equal(found.cpu(), expected), f"{found.tolist()} is not {expected.tolist()}"
        )


def check_synchronize(devices: Devices) -> None:
    """Wait for each device."""
    for device in devices:
        torch.accelerator.synchronize(device.index)


def check_current_stream(devices: Devices) -> None:
    """Get the current stream of each device."""
    for device in devices:
        stream = torch.accelerator.current_stream(device.index)
        _require(stream.device == device, f"the stream of {device} is on {stream.device}")


def check_stream_waits(devices: Devices) -> None:
    """Make the stream of each device wait for each other one."""
    streams = [torch.accelerator.current_stream(device.index) for device in devices]
    for waiting, awaited in itertools.permutations(streams, 2):
        waiting.wait_stream(awaited)


def check_backward(devices: Devices) -> None:
    """Compute gradients on each device, and compare them with the CPU's."""
    for device in devices:
        torch.manual_seed(0)
        module, batch = nn.Linear(3, 2), torch.arange(6.0).reshape(2, 3)
        torch.autograd.backward(module(batch).square().sum())
        expected = _gradient(module.weight)
        module.zero_grad()
        torch.autograd.backward(module.to(device)(batch.to(device)).square().sum())
        found = _gradient(module.weight)
        _require(torch.allclose(found, expected), f"{device}: the gradient is {found.tolist()}")


def check_backward_over_devices(devices: Devices) -> None:
    """Compute the gradient of a sum of copies on all devices."""
    x = torch.ones(2, device=devices[0], requires_grad=True)
    copies = [(x.to(device) * 2).to(devices[0]) for device in devices]
    torch.autograd.backward(torch.stack(copies).sum())
    found, expected = _gradient(x).tolist(), [2.0 * len(devices)] * 2
    _require(found == expected, f"the gradient is {found}, not {expected}")


def _gradient(tensor: Tensor) -> Tensor:
    """Return the gradient of ``tensor`` on the CPU."""
    if tensor.grad is None:
        raise WrongResultError("backward computes no gradient")
    return tensor.grad.cpu()


def check_new_streams(devices: Devices) -> None:
    """Create a stream and make it current."""
    stream = torch.Stream(devices[0])
    before = torch.accelerator.current_stream(devices[0].index)
    torch.accelerator.set_stream(stream)
    torch.accelerator.set_stream(before)


def check_distinct_streams(devices: Devices) -> None:
    """Create a stream that differs from the current one."""
    new, current = torch.Stream(devices[0]), torch.accelerator.current_stream(devices[0].index)
    _require(new != current, "torch.Stream(device) returns the current stream")


def check_events(devices: Devices) -> None:
    """Record an event, wait for it on the host, and query it."""
    event = torch.Event(devices[0])
    event.record(torch.accelerator.current_stream(devices[0].index))
    event.synchronize()
    _require(event.query(), "query() is False after synchronize()")


def check_record_stream(devices: Devices) -> None:
    """Try ``Tensor.record_stream``."""
    tensor = torch.ones(1, device=devices[0])
    tensor.record_stream(torch.accelerator.current_stream(devices[0].index))


def check_seeds(devices: Devices) -> None:
    """Seed all devices twice, and compare the numbers that they draw."""
    draws = []
    for _ in range(2):
        _module(devices).manual_seed_all(3)
        draws.append([torch.rand(2, device=device).tolist() for device in devices])
    _require(draws[0] == draws[1], "one seed gives different numbers")


def check_generators(devices: Devices) -> None:
    """Draw from two generators with one seed."""
    draws = []
    for _ in range(2):
        generator = torch.Generator(devices[0]).manual_seed(3)
        draws.append(torch.rand(2, device=devices[0], generator=generator).tolist())
    _require(draws[0] == draws[1], "one seed gives different numbers")


def check_autocast(devices: Devices) -> None:
    """Multiply matrices under autocast to bfloat16."""
    matrix = torch.ones(2, 2, device=devices[0])
    with torch.autocast(devices[0].type, dtype=torch.bfloat16):
        dtype = (matrix @ matrix).dtype
    _require(dtype == torch.bfloat16, f"a product under autocast is {dtype}")


def check_pinned_memory(devices: Devices) -> None:
    """Pin a tensor."""
    _require(torch.ones(1).pin_memory().is_pinned(), "is_pinned() is False")


def check_sparse(devices: Devices) -> None:
    """Convert a matrix to the sparse layout and back."""
    dense = torch.eye(2, device=devices[0])
    _require(torch.equal(dense.to_sparse().to_dense().cpu(), torch.eye(2)), "other values")


def check_channels_last(devices: Devices) -> None:
    """Convolve an image with a weight in the memory format channels-last."""
    image, weight = torch.ones(1, 2, 3, 3), torch.ones(2, 2, 3, 3)
    moved = weight.to(memory_format=torch.channels_last).to(devices[0])
    found = nn.functional.conv2d(image.to(devices[0]), moved)
    _require(torch.equal(found.cpu(), nn.functional.conv2d(image, weight)), "other values")


def check_empty_batches(devices: Devices) -> None:
    """Train a linear layer on a batch without rows; the gradients must be zero."""
    layer = nn.Linear(4, 4).to(devices[0])
    rows = torch.zeros(0, 4, device=devices[0])
    for size in (4, 16):
        torch.full((size,), 7.0, device=devices[0])  # Freed at once, so this memory is used again.
    nn.Sequential(layer, layer, layer)(rows).sum().backward()
    gradients = [parameter.grad.cpu() for parameter in layer.parameters()]  # type: ignore[union-attr]
    _require(not any(map(torch.any, gradients)), "the gradients of no rows are not zero")
    _require((rows @ torch.ones(4, 4, device=devices[0])).shape == (0, 4), "another shape")


def check_kept_parameters(devices: Devices) -> None:
    """Move a module to a device; its parameters must stay the same objects."""
    module = nn.Linear(1, 1)
    before = module.weight
    _require(module.to(devices[0]).weight is before, "module.to() creates new parameters")
