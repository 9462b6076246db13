"""Checks of the functions of a back end that DataParallel needs.

A check raises `WrongResultError` if a result is wrong. Any other exception of a check means that
the back end lacks the function.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.harness.environment.probes import WrongResultError

__all__ = [
    "Devices",
    "check_availability",
    "check_backward",
    "check_backward_over_devices",
    "check_copies_between_devices",
    "check_copies_from_views",
    "check_count",
    "check_current_device",
    "check_current_stream",
    "check_new_tensors",
    "check_stream_waits",
    "check_strided_writes",
    "check_synchronize",
    "device_module",
    "require",
]

Devices = Sequence[torch.device]
#: Lengths of the copied tensors, in elements of 4 bytes: 64 bytes are one cache line, and 1 MiB is
#: more than a staging buffer.
EXTENTS = (16, 2**18)


def require(condition: bool, text: str) -> None:
    """Raise WrongResultError with ``text`` if ``condition`` is false."""
    if not condition:
        raise WrongResultError(text)


def device_module(devices: Devices) -> Any:
    """Return the device module of ``devices``, such as ``torch.cuda``."""
    return torch.get_device_module(devices[0])


def check_availability(devices: Devices) -> None:
    """Try ``is_available``."""
    require(device_module(devices).is_available() is True, "is_available() is not True")


def check_count(devices: Devices) -> None:
    """Try ``device_count``, which must include all ``devices``."""
    count = device_module(devices).device_count()
    require(count > max(device.index for device in devices), f"device_count() is {count}")


def check_current_device(devices: Devices) -> None:
    """Make each device current."""
    before = torch.accelerator.current_device_index()
    try:
        for device in devices:
            torch.accelerator.set_device_index(device.index)
            found = torch.accelerator.current_device_index()
            require(found == device.index, f"after set_device_index({device.index}): {found}")
    finally:
        torch.accelerator.set_device_index(before)


def check_new_tensors(devices: Devices) -> None:
    """Create a tensor on each device while each device is current."""
    for current, device in itertools.product(devices, repeat=2):
        with torch.accelerator.device_index(current.index):
            tensor = torch.ones(EXTENTS[-1], device=device)
            text = f"with {current} current, a tensor for {device} is on {tensor.device}"
            require(tensor.device == device, text)
            require(bool(tensor.cpu().eq(1).all()), f"torch.ones on {device} has other values")


def check_copies_between_devices(devices: Devices) -> None:
    """Copy tensors between all devices and the CPU. The current device stays the same.

    Broken peer-to-peer copies return zeros or old values, so that a correct target seems wrong:
    https://github.com/pytorch/pytorch/issues/107374.
    """
    everywhere = [torch.device("cpu"), *devices]
    for extent, source, target in itertools.product(EXTENTS, everywhere, everywhere):
        expected = torch.arange(1, extent + 1, dtype=torch.int32)
        before = torch.accelerator.current_device_index()
        copy = expected.to(source).to(target)
        require(copy.device == target, f"a copy to {target} is on {copy.device}")
        text = f"a copy from {source} to {target} changes the current device"
        require(torch.accelerator.current_device_index() == before, text)
        text = f"{4 * extent} bytes copied from {source} to {target} arrive with other values"
        require(torch.equal(copy.cpu(), expected), text)


def check_copies_from_views(devices: Devices) -> None:
    """Copy transposed tensors to a device and to the CPU."""
    matrix = torch.arange(12.0).reshape(3, 4)
    for copy in (matrix.to(devices[0]).t().cpu(), matrix.t().to(devices[0]).cpu()):
        require(torch.equal(copy, matrix.t()), f"the copy of a transposed tensor is {copy}")


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
        require(torch.equal(found.cpu(), expected), f"{found.tolist()} is not {expected.tolist()}")


def check_synchronize(devices: Devices) -> None:
    """Wait for each device."""
    for device in devices:
        torch.accelerator.synchronize(device.index)


def check_current_stream(devices: Devices) -> None:
    """Get the current stream of each device."""
    for device in devices:
        stream = torch.accelerator.current_stream(device.index)
        require(stream.device == device, f"the stream of {device} is on {stream.device}")


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
        require(torch.allclose(found, expected), f"{device}: the gradient is {found.tolist()}")


def check_backward_over_devices(devices: Devices) -> None:
    """Compute the gradient of a sum of copies on all devices."""
    x = torch.ones(2, device=devices[0], requires_grad=True)
    copies = [(x.to(device) * 2).to(devices[0]) for device in devices]
    torch.autograd.backward(torch.stack(copies).sum())
    found, expected = _gradient(x).tolist(), [2.0 * len(devices)] * 2
    require(found == expected, f"the gradient is {found}, not {expected}")


def _gradient(tensor: Tensor) -> Tensor:
    """Return the gradient of ``tensor`` on the CPU."""
    if tensor.grad is None:
        raise WrongResultError("backward computes no gradient")
    return tensor.grad.cpu()
