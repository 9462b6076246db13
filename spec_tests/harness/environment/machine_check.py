"""Checks that this machine places and copies tensors correctly, before a target is judged.

Broken peer-to-peer copies return zeros or old values, so that a correct target seems wrong
(https://github.com/pytorch/pytorch/issues/107374).
"""

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor

from spec_tests.harness.environment import back_end

#: Lengths of the copied tensors, in elements of 4 bytes: 64 bytes are one cache line, and 1 MiB is
#: more than a staging buffer.
EXTENTS = (16, 2**18)

Copy = Callable[[Tensor, torch.device], Tensor]


def _copy_to(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.to(device)


def require_copies(devices: Sequence[torch.device], copy: Copy = _copy_to) -> None:
    """End the run with exit status 3 if a copy between devices changes the values."""
    found = first_broken_copy(devices, copy)
    if found is not None:
        pytest.exit(found, returncode=3)


def require_devices(devices: Sequence[torch.device]) -> None:
    """End the run with exit status 3 if a device places or copies tensors wrongly.

    A new or copied tensor must be on the given device, and a copy must not change the current
    device.
    """
    found = next(_find_misplaced_tensors(list(dict.fromkeys(devices))), None)
    if found is not None:
        pytest.exit(f"machine broken: {found}. No implementation can be judged here", returncode=3)


def require_writes(devices: Sequence[torch.device]) -> None:
    """End the run with exit status 3 if a write to a part of a tensor changes other elements."""
    (check,) = (each for each in back_end.CHECKS if each.name == "strided writes")
    finding = back_end.try_check(check, devices)
    if finding.state == "wrong":
        text = f"machine broken: after writes to parts of a tensor: {finding.text}"
        pytest.exit(f"{text}. No implementation can be judged here", returncode=3)


def _find_misplaced_tensors(devices: Sequence[torch.device]) -> Iterator[str]:
    for current in devices:
        with torch.accelerator.device_index(current.index):
            for device in devices:
                yield from _check_device_pair(current, device)


def _check_device_pair(current: torch.device, device: torch.device) -> Iterator[str]:
    """Yield a text for each error of tensors on ``device``; ``current`` is the current device."""
    try:
        made = torch.ones(EXTENTS[-1], device=device)
        copied = made.to(current)
    except torch.OutOfMemoryError as error:
        yield f"{device} or {current} has no memory left ({error})"
        return
    if (made.device, copied.device) != (device, current):
        yield f"with {current} current, a tensor for {device} is on {made.device}"
    elif torch.accelerator.current_device_index() != current.index:
        yield f"a copy from {device} to {current} changes the current device"
    made.copy_(copied)
    if torch.accelerator.current_device_index() != current.index:
        yield f"a copy from {current} to {device} changes the current device"


def first_broken_copy(devices: Sequence[torch.device], copy: Copy) -> str | None:
    """Check copies between all of ``devices`` and the CPU, and wait for the copies.

    Args:
        devices: Devices of the accelerator, repeats allowed.
        copy: The function that copies a tensor to a device.

    Returns:
        A description of the first wrong copy; None if all copies are correct.
    """
    host = torch.device("cpu")
    everywhere = [host, *dict.fromkeys(devices)]
    return next(_find_broken_copies(everywhere, copy), None)


def _find_broken_copies(devices: Sequence[torch.device], copy: Copy) -> Iterator[str]:
    for extent in EXTENTS:
        expected = torch.arange(1, extent + 1, dtype=torch.int32)
        for source in devices:
            sent = copy(expected, source)
            for target in devices:
                if not torch.equal(copy(copy(sent, target), devices[0]), expected):
                    yield (
                        f"machine broken: {4 * extent} bytes copied from {source} to {target} "
                        "arrived with other values. No implementation can be judged here; check "
                        "peer-to-peer access (NCCL_P2P_DISABLE=1, IOMMU) and the driver"
                    )
