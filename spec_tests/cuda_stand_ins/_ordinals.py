"""Adaptation of the device arguments of torch.nn.parallel's parallel_apply.

parallel_apply calls ``torch.cuda._utils._get_device_index``. That function refuses
``torch.device("sim:0")`` and ``"sim:0"``. The other functions of torch.nn.parallel query the
current accelerator.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch

from ._devices import accelerator_type

#: The attribute of the module ``parallel_apply`` that is replaced.
_NAME = "_get_device_index"


def accept_this_accelerator() -> None:
    """Make parallel_apply accept the devices of the current accelerator.

    Do nothing if PyTorch has no torch.nn.parallel.
    """
    module = sys.modules.get("torch.nn.parallel.parallel_apply")
    if module is not None:
        setattr(module, _NAME, adapt_get_device_index(getattr(module, _NAME)))


def adapt_get_device_index(get_cuda_index: Callable[..., int]) -> Callable[..., int]:
    """Return ``get_cuda_index``, changed to accept devices of the current accelerator, too."""

    def get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
        try:
            return get_cuda_index(_as_cuda(device), optional, allow_cpu)
        except ValueError as error:
            raise ValueError(str(error).replace("cuda", accelerator_type())) from None

    return get_device_index


def _as_cuda(device: Any) -> Any:
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device) and device.type == accelerator_type():
        return torch.device("cuda", device.index)
    return device
