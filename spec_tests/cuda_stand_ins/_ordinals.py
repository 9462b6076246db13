"""Device arguments of the reference's parallel_apply, which accepts only CUDA devices.

parallel_apply calls ``torch.cuda._utils._get_device_index``, which refuses
``torch.device("sim:0")`` and ``"sim:0"``. The other functions of torch.nn.parallel query the
current accelerator.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch

from ._devices import accelerator

_NAME = "_get_device_index"


def accept_this_accelerator() -> None:
    """Make parallel_apply accept the devices of the current accelerator.

    Do nothing if PyTorch has no torch.nn.parallel.
    """
    module = sys.modules.get("torch.nn.parallel.parallel_apply")
    if module is not None:
        setattr(module, _NAME, device_index_reader(getattr(module, _NAME)))


def device_index_reader(cuda_reader: Callable[..., int]) -> Callable[..., int]:
    """Return a function like ``cuda_reader`` that accepts and names the current accelerator."""

    def ordinal(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
        try:
            return cuda_reader(_as_cuda(device), optional, allow_cpu)
        except ValueError as error:
            raise ValueError(str(error).replace("cuda", accelerator())) from None

    return ordinal


def _as_cuda(device: Any) -> Any:
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device) and device.type == accelerator():
        return torch.device("cuda", device.index)
    return device
