"""A simulated accelerator: device type ``sim`` with several devices, in host memory."""

import os
import types

import torch

from . import build

__all__ = ["enable"]

_state: dict[str, int] = {}


def enable(device_count: int | None = None) -> None:
    """Register the device type ``sim`` with ``device_count`` devices, in this process.

    Args:
        device_count: How many devices there shall be. ``None`` means the number in the
            environment variable ``SIM_DEVICE_COUNT``, or 4.

    Raises:
        RuntimeError: It was enabled before with another number of devices.
    """
    count = int(os.environ.get("SIM_DEVICE_COUNT", "4")) if device_count is None else device_count
    if "count" in _state:
        if _state["count"] != count:
            raise RuntimeError(
                f"sim has {_state['count']} devices already, it cannot have {count}"
            )
        return
    _register(count)
    _state["count"] = count


def _register(count: int) -> None:
    native = build.load()
    native.start(count)
    torch.utils.rename_privateuse1_backend("sim")
    torch._register_device_module("sim", _device_module(native))
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )


def _device_module(native: types.ModuleType) -> types.ModuleType:
    from . import torch_sim

    torch_sim._native = native
    return torch_sim
