"""Whether this machine copies tensors at all; asked before any implementation is blamed.

Broken peer-to-peer transfers deliver zeros or stale values, and look like a wrong implementation
(https://github.com/pytorch/pytorch/issues/107374).
"""

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor

#: Numbers in a copy: one cache line, and more than any staging buffer holds at a time.
EXTENTS = (16, 2**18)

Copy = Callable[[Tensor, torch.device], Tensor]


def _to(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.to(device)


def require_copies(devices: Sequence[torch.device], copy: Copy = _to) -> None:
    """End the whole run, with exit status 3, if the machine garbles copies."""
    found = first_broken_copy(devices, copy)
    if found is not None:
        pytest.exit(found, returncode=3)


def first_broken_copy(devices: Sequence[torch.device], copy: Copy) -> str | None:
    """Try copies between all of ``devices`` and the CPU.

    Args:
        devices: Devices of the accelerator, repeats allowed.
        copy: What copies a tensor to a device.

    Returns:
        The first copy that delivered something else than what was sent, in words; None if all
        copies can be trusted. Waits for the devices.
    """
    host = torch.device("cpu")
    places = [host, *dict.fromkeys(devices)]
    return next(_broken(places, copy), None)


def _broken(places: Sequence[torch.device], copy: Copy) -> Iterator[str]:
    for extent in EXTENTS:
        expected = torch.arange(1, extent + 1, dtype=torch.int32)
        for source in places:
            sent = copy(expected, source)
            for target in places:
                if not torch.equal(copy(copy(sent, target), places[0]), expected):
                    yield (
                        f"machine broken: {4 * extent} bytes copied from {source} to {target} "
                        "arrived as others. No implementation can be judged here; check "
                        "peer-to-peer access (NCCL_P2P_DISABLE=1, IOMMU) and the driver"
                    )
