"""DataParallel and data_parallel: scatter, replicate, parallel_apply, gather."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from spec_tests.oracle._devices import all_devices, as_device
from spec_tests.oracle.comm import DeviceLike
from spec_tests.oracle.parallel_apply import parallel_apply
from spec_tests.oracle.replicate import replicate
from spec_tests.oracle.scatter_gather import gather, scatter_kwargs

#: The least ratio of the smallest to the largest memory or number of processors without a warning.
MIN_BALANCE = 0.75
WRONG_DEVICE = (
    "module must have its parameters and buffers on device {} (device_ids[0]) "
    "but found one of them on device: {}"
)
IMBALANCE_WARNING = """
    There is an imbalance between your GPUs. You may want to exclude GPU {} which
    has less than 75% of the memory or cores of GPU {}. You can do so by setting
    the device_ids argument to DataParallel, or by setting the CUDA_VISIBLE_DEVICES
    environment variable."""


class DataParallel(nn.Module):
    """A module whose calls are split over devices.

    Args:
        module: The module.
        device_ids: The devices; None for all.
        output_device: The device of the joined outputs; None for the first device.
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
        places = all_devices() if device_ids is None else [as_device(each) for each in device_ids]
        self.module = module
        self.device_ids = [_ordinal(each) for each in places]
        self.output_device = _ordinal(
            places[0] if output_device is None else as_device(output_device)
        )
        self.dim = dim
        self.src_device_obj = places[0]
        _warn_of_imbalance(places)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Return the joined outputs."""
        args, named = self.scatter(inputs, kwargs, self.device_ids)
        args, named = (args, named) if args else (((),), ({},))
        check_module_device(self.module, self.src_device_obj)
        if len(self.device_ids) == 1:
            return self.module(*args[0], **named[0])
        replicas = self.replicate(self.module, self.device_ids[: len(args)])
        outputs = self.parallel_apply(replicas, args, named)
        return self.gather(outputs, self.output_device)

    def scatter(self, inputs: Any, kwargs: Any, devices: Sequence[DeviceLike]) -> Any:
        """Return the arguments of each replica."""
        return scatter_kwargs(inputs, kwargs, devices, self.dim)

    def replicate(self, module: nn.Module, devices: Sequence[DeviceLike]) -> list[nn.Module]:
        """Return the replicas, detached outside grad mode."""
        return replicate(module, devices, not torch.is_grad_enabled())

    def parallel_apply(self, replicas: Sequence[nn.Module], args: Any, named: Any) -> list[Any]:
        """Return the output of each replica."""
        return parallel_apply(replicas, args, named, self.device_ids[: len(replicas)])

    def gather(self, outputs: Any, output: DeviceLike) -> Any:
        """Return the joined outputs."""
        return gather(outputs, output, self.dim)


def data_parallel(
    module: nn.Module,
    inputs: Any,
    device_ids: Sequence[DeviceLike] | None = None,
    output_device: DeviceLike = None,
    dim: int = 0,
    module_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Return the joined outputs; the replicas are not detached."""
    inputs = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    devices = all_devices() if device_ids is None else list(device_ids)
    args, named = scatter_kwargs(inputs, module_kwargs, devices, dim)
    args, named = (args, named) if args else (((),), ({},))
    check_module_device(module, as_device(devices[0]))
    if len(devices) == 1:
        return module(*args[0], **named[0])
    devices = devices[: len(args)]
    outputs = parallel_apply(replicate(module, devices), args, named, devices)
    return gather(outputs, devices[0] if output_device is None else output_device, dim)


def check_module_device(module: nn.Module, expected: torch.device) -> None:
    """Raise a RuntimeError unless all parameters and buffers are on the first device."""
    for each in [*module.parameters(), *module.buffers()]:
        if each.device != expected:
            raise RuntimeError(WRONG_DEVICE.format(expected, each.device))


def _ordinal(device: torch.device) -> int:
    return -1 if device.index is None else device.index


def _warn_of_imbalance(places: Sequence[torch.device]) -> None:
    if places[0].type == "cuda":
        _check_balance(places)


def _check_balance(device_ids: Sequence[torch.device]) -> None:
    """Warn if one of the devices is much smaller than another."""
    places = device_ids
    properties = [torch.get_device_module(each).get_device_properties(each) for each in places]
    for name in ("total_memory", "multi_processor_count"):
        values = [getattr(each, name) for each in properties]
        least, most = min(values), max(values)
        if least / most < MIN_BALANCE:
            named = [places[values.index(each)].index for each in (least, most)]
            warnings.warn(IMBALANCE_WARNING.format(*named), stacklevel=3)
            return
