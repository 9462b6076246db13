"""DataParallel and data_parallel, which call scatter, replicate, parallel_apply and gather."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from spec_tests.machine.clauses import exception_of
from spec_tests.oracle._devices import all_devices, as_device
from spec_tests.oracle.comm import DeviceLike
from spec_tests.oracle.parallel_apply import parallel_apply
from spec_tests.oracle.replicate import replicate
from spec_tests.oracle.scatter_gather import gather, scatter_kwargs

#: DataParallel warns if the smallest memory or multiprocessor count, divided by the greatest, is
#: less than this ratio.
MIN_BALANCE = 0.75
IMBALANCE_WARNING = """
    There is an imbalance between your GPUs. You may want to exclude GPU {} which
    has less than 75% of the memory or cores of GPU {}. You can do so by setting
    the device_ids argument to DataParallel, or by setting the CUDA_VISIBLE_DEVICES
    environment variable."""


class DataParallel(nn.Module):
    """A module that runs ``module`` on several devices.

    Args:
        module: The module to replicate.
        device_ids: The devices; None for all devices.
        output_device: The device of the gathered outputs; None for the first device.
        dim: The dimension that is split.
    """

    def __init__(
        self,
        module: nn.Module,
        device_ids: Sequence[DeviceLike] | None = None,
        output_device: DeviceLike = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        devices = all_devices() if device_ids is None else list(map(as_device, device_ids))
        self.module = module
        self.device_ids = [_ordinal(device) for device in devices]
        self.output_device = _ordinal(
            devices[0] if output_device is None else as_device(output_device)
        )
        self.dim = dim
        self.src_device_obj = devices[0]
        if devices[0].type == "cuda":
            _check_balance(devices)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Return the gathered outputs."""
        args, keywords = self.scatter(inputs, kwargs, self.device_ids)
        args, keywords = (args, keywords) if args else (((),), ({},))
        check_module_device(self.module, self.src_device_obj)
        if len(self.device_ids) == 1:
            return self.module(*args[0], **keywords[0])
        replicas = self.replicate(self.module, self.device_ids[: len(args)])
        outputs = self.parallel_apply(replicas, args, keywords)
        return self.gather(outputs, self.output_device)

    def scatter(self, inputs: Any, kwargs: Any, devices: Sequence[DeviceLike]) -> Any:
        """Return the positional and the keyword arguments of each replica."""
        return scatter_kwargs(inputs, kwargs, devices, self.dim)

    def replicate(self, module: nn.Module, devices: Sequence[DeviceLike]) -> list[nn.Module]:
        """Return a replica for each device. The replicas are detached if grad mode is disabled."""
        return replicate(module, devices, not torch.is_grad_enabled())

    def parallel_apply(self, replicas: Sequence[nn.Module], args: Any, kwargs: Any) -> list[Any]:
        """Return the output of each replica."""
        return parallel_apply(replicas, args, kwargs, self.device_ids[: len(replicas)])

    def gather(self, outputs: Any, output_device: DeviceLike) -> Any:
        """Return the gathered outputs."""
        return gather(outputs, output_device, self.dim)


def data_parallel(
    module: nn.Module,
    inputs: Any,
    device_ids: Sequence[DeviceLike] | None = None,
    output_device: DeviceLike = None,
    dim: int = 0,
    module_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Return the gathered outputs. The replicas are never detached."""
    inputs = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    devices = all_devices() if device_ids is None else list(device_ids)
    args, keywords = scatter_kwargs(inputs, module_kwargs, devices, dim)
    args, keywords = (args, keywords) if args else (((),), ({},))
    check_module_device(module, as_device(devices[0]))
    if len(devices) == 1:
        return module(*args[0], **keywords[0])
    devices = devices[: len(args)]
    outputs = parallel_apply(replicate(module, devices), args, keywords, devices)
    return gather(outputs, devices[0] if output_device is None else output_device, dim)


def check_module_device(module: nn.Module, expected: torch.device) -> None:
    """Raise a RuntimeError unless all parameters and buffers are on the device ``expected``."""
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.device != expected:
            clause = "data_parallel.devices.checked-at-the-call"
            raise exception_of(clause, expected=expected, device=tensor.device)


def _ordinal(device: torch.device) -> int:
    return -1 if device.index is None else device.index


def _check_balance(device_ids: Sequence[torch.device]) -> None:
    """Warn if the devices differ too much in memory or in the number of multiprocessors."""
    properties = [
        torch.get_device_module(device).get_device_properties(device) for device in device_ids
    ]
    for name in ("total_memory", "multi_processor_count"):
        values = [getattr(each, name) for each in properties]
        least, most = min(values), max(values)
        if least / most < MIN_BALANCE:
            ordinals = [device_ids[values.index(value)].index for value in (least, most)]
            warnings.warn(IMBALANCE_WARNING.format(*ordinals), stacklevel=2)
            return
