"""Undocumented names that other packages import from the modules of torch.nn.parallel.

For each module: a name, and the software that uses it.

_functions
    _get_stream                      mmcv, torch.distributed, and modified copies of DataParallel
                                     that scatter other containers. They copy from the CPU on this
                                     stream during the computation.
    _streams                         torch_npu, which stores its streams in it
    Function                         nncore, which imports it together with Scatter
comm
    _get_device_index                a test that replaces it
    _handle_complex                  code that views complex tensors as real ones
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
    is_namedtuple                    copies of scatter, which use this older name

impl calls three of these names, so a replacement of them changes impl: ``_check_balance`` in
``data_parallel``, and ``_is_jit_enabled`` and ``_is_script_module`` in ``replicate``. A
replacement of another name does not change impl. ``_broadcast_coalesced_reshape`` and
``_replicatable_module`` are in ``replicate``: the former uses ``functions``, which imports this
module.
"""

import torch
from torch import Tensor

from ._containers import is_named_tuple
from ._devices import (
    accelerator_type,
    as_device_or_current,
    check_device_type,
    device_index,
    is_cpu,
    side_stream,
)

is_namedtuple = _is_namedtuple = is_named_tuple

_get_available_device_type = accelerator_type

_get_device_index = device_index

#: Always None, as in torch.nn.parallel before its first copy. impl keeps its streams in
#: ``_devices``.
_streams: list[torch.Stream | None] | None = None


def _get_stream(device: torch.device) -> torch.Stream | None:
    """Return the stream of ``device`` for copies from the CPU; None if ``device`` has no streams.

    Raise AssertionError if ``device`` is of another type than the accelerator.
    """
    kind = accelerator_type()
    if kind is None or is_cpu(device):
        return None
    check_device_type(device, kind)
    return side_stream(as_device_or_current(device))


def _handle_complex(tensor: Tensor) -> Tensor:
    """Return a real view of a complex tensor; return any other tensor itself."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _is_script_method(module: object) -> bool:
    return isinstance(module, torch.ScriptMethod)


def _init_script_module() -> torch.jit.ScriptModule:
    return torch.jit.ScriptModule()
