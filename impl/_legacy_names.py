"""Names that other packages import from torch.nn.parallel's modules, kept under these names.

_functions
    _get_stream                      mmcv, torch.distributed, and copies of DataParallel for other
                                     containers, which copy from the CPU beside the computation
    _streams                         torch_npu, which keeps streams of its own in it
    Function                         nncore, beside Scatter
comm
    _get_device_index                a test that replaces it
    _handle_complex                  code that reads complex tensors as real ones
data_parallel
    _check_balance                   petals, and copies of DataParallel; code that replaces it
    _get_available_device_type       tests that replace it
parallel_apply
    _get_device_index                copies of parallel_apply
replicate
    _broadcast_coalesced_reshape     torchmeta, and copies of replicate
    _get_device_index, _init_script_module, _is_jit_enabled, _is_script_method,
    _is_script_module, _replicatable_module
                                     copies of replicate
scatter_gather
    _is_namedtuple                   nncore and torch.distributed
    is_namedtuple                    copies of scatter, by the older name

``_broadcast_coalesced_reshape`` and ``_replicatable_module`` are in ``replicate``, because they
need its functions. Of the names that tests replace, only a replaced ``_check_balance`` changes
what impl does.
"""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from ._compat import is_torchscript_enabled
from ._device import (
    DeviceLike,
    accelerator_type,
    as_device_or_current,
    check_device_type,
    current_device,
    device_index,
    has_streams,
    is_cpu,
    side_stream,
)
from ._pytree import is_named_tuple

#: Of two devices, the smaller should have this much of what the larger has.
_BALANCED = 0.75

_IMBALANCE = """
    There is an imbalance between your GPUs. You may want to exclude GPU {} which
    has less than 75% of the memory or cores of GPU {}. You can do so by setting
    the device_ids argument to DataParallel, or by setting the CUDA_VISIBLE_DEVICES
    environment variable."""

is_namedtuple = _is_namedtuple = is_named_tuple

_get_available_device_type = accelerator_type

_is_jit_enabled = is_torchscript_enabled

#: None, as in torch.nn.parallel before its first copy: impl's streams are kept in ``_devices``.
_streams: list[torch.Stream | None] | None = None


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
    check_device_type(device, kind)
    return side_stream(as_device_or_current(device))


def _get_device_index(
    device: DeviceLike | None, optional: bool = False, allow_cpu: bool = False
) -> int:
    """Return the ordinal that ``device`` names.

    Args:
        device: An ordinal, or a device (as a string or not).
        optional: Whether a device without index, or None, is the current one.
        allow_cpu: Whether the CPU is -1.

    Raises:
        ValueError: ``device`` is the CPU, and not ``allow_cpu``; it carries no index, and not
            ``optional``.
        RuntimeError: ``device`` is a string that names no device; the current one is asked for,
            and there is no accelerator.
    """
    if is_cpu(device) and allow_cpu:
        return -1
    try:
        return device_index(device)  # type: ignore[arg-type] # None is refused there
    except ValueError:
        if is_cpu(device) or not optional:
            raise
    return current_device().index


def _handle_complex(tensor: Tensor) -> Tensor:
    """Return a complex tensor viewed as a real one, any other tensor as it is.

    Raises:
        RuntimeError: ``tensor`` is a conjugate that is not resolved yet.
    """
    # A parameter that is not initialized yet cannot be asked.
    return torch.view_as_real(tensor) if not is_lazy(tensor) and tensor.is_complex() else tensor


def _is_script_module(module: object) -> bool:
    """Return whether ``module`` is a module of TorchScript."""
    return isinstance(module, torch.jit.ScriptModule)


def _is_script_method(module: object) -> bool:
    """Return whether ``module`` is a method of a module of TorchScript."""
    return isinstance(module, torch.ScriptMethod)


def _init_script_module() -> torch.jit.ScriptModule:
    """Return a new module of TorchScript with nothing in it."""
    return torch.jit.ScriptModule()


def _check_balance(device_ids: Sequence[DeviceLike]) -> None:
    """Warn if one of several devices is much smaller than another.

    Args:
        device_ids: Devices of the accelerator; one without index is the current one.

    Raises:
        ValueError: ``device_ids`` is empty or contains the CPU.

    Warns:
        UserWarning: It points at the caller of the function that calls this one.
    """
    ordinals = [_get_device_index(device, optional=True) for device in device_ids]
    get_properties = torch.get_device_module(accelerator_type()).get_device_properties
    properties = [*map(get_properties, ordinals)]
    for sizes in (
        [device.total_memory for device in properties],
        [device.multi_processor_count for device in properties],
    ):
        if min(sizes) < _BALANCED * max(sizes):
            small, large = (ordinals[sizes.index(size)] for size in (min(sizes), max(sizes)))
            warnings.warn(_IMBALANCE.format(small, large), stacklevel=3)
            return
