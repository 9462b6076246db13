"""Names that other packages import from torch.nn.parallel's modules, kept under these names.

functions._get_stream            mmcv, torch.distributed and copies of DataParallel for other
                                 containers, which copy from the CPU beside the computation
scatter_gather.is_namedtuple     the same copies, which build named tuples anew
scatter_gather._is_namedtuple    nncore and torch.distributed, by the older name
_functions                       all who import Scatter, Gather, Broadcast, ... from there
"""

import torch

from .._device import (
    accelerator_type,
    as_device_or_current,
    check_accelerated,
    has_streams,
    side_stream,
)
from .._pytree import is_named_tuple

__all__ = ["_get_stream", "_is_namedtuple", "is_namedtuple"]

is_namedtuple = _is_namedtuple = is_named_tuple


def _get_stream(device: torch.device) -> torch.Stream | None:
    """Give the stream of ``device`` that copies from the CPU run on.

    Args:
        device: A device of the accelerator, or any device where there is none.

    Returns:
        The same stream every time; None for the CPU, and where there are no streams.

    Raises:
        AssertionError: ``device`` is of another type than the accelerator.
    """
    kind = accelerator_type()
    if kind is None or not has_streams(device):
        return None
    check_accelerated(device, kind)
    return side_stream(as_device_or_current(device))
