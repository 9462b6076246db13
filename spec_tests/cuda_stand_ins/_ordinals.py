"""Device arguments of the reference's parallel_apply, which reads them as CUDA's.

Everything else in torch.nn.parallel asks which accelerator there is. parallel_apply alone calls
``torch.cuda._utils._get_device_index``, which refuses ``torch.device("sim:0")`` and ``"sim:0"``.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch

from ._devices import accelerator

_READER = "_get_device_index"


def accept_this_accelerator() -> None:
    """Make parallel_apply take this accelerator's devices where it would take CUDA's.

    A PyTorch without torch.nn.parallel has nothing to change.
    """
    module = sys.modules.get("torch.nn.parallel.parallel_apply")
    if module is not None:
        setattr(module, _READER, reader(getattr(module, _READER)))


def reader(of_cuda: Callable[..., int]) -> Callable[..., int]:
    """``of_cuda``, reading and naming the accelerator where that reads and names CUDA."""

    def ordinal(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
        try:
            return of_cuda(_as_cuda(device), optional, allow_cpu)
        except ValueError as error:
            raise ValueError(str(error).replace("cuda", accelerator())) from None

    return ordinal


def _as_cuda(device: Any) -> Any:
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device) and device.type == accelerator():
        return torch.device("cuda", device.index)
    return device
