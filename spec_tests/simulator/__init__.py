"""A simulated accelerator: device type ``sim`` with several devices, on the CPU.

It needs no hardware. The memory of a device is host memory that no other device can access. An
operator runs the CPU kernel and has finished when it returns, so a missing wait for a stream or an
event does not change the result. ``with races() as found:`` finds the accesses that need such a
wait on real hardware. A device and the CPU draw the same random numbers from the same seed.

An unsupported operator raises NotImplementedError with its name. Quantized and MKL-DNN tensors are
unsupported. Operators of other libraries than PyTorch and torchvision need a kernel for ``sim``.
``python -m spec_tests.simulator.tests.operator_sweep`` compares the supported operators with the
CPU.
"""

import atexit
import os

import torch
from torch.utils.backend_registration import (
    generate_methods_for_privateuse1_backend,
    rename_privateuse1_backend,
)

from . import device_module, features, native
from .faults import FAULTS, PRIMITIVES, fault
from .features import FEATURES, PROFILES, missing, switch_off
from .race_detector import Access, Race, races
from .wait_at_exit import wait_for_autograd_threads

__all__ = [
    "FAULTS",
    "FEATURES",
    "PRIMITIVES",
    "PROFILES",
    "Access",
    "Race",
    "enable",
    "fault",
    "missing",
    "races",
    "switch_off",
]

_MAX_DEVICES = 64


def enable(device_count: int | None = None) -> None:
    """Register the device type ``sim`` with ``device_count`` devices in this process.

    The first call on a machine compiles an extension, in about half a minute, and caches it.
    Call ``enable`` before the first backward pass of the process: PyTorch then starts one
    autograd thread for each registered device.

    Args:
        device_count: The number of devices, 1 to 64. ``None`` uses the environment variable
            ``SIM_DEVICE_COUNT``, or 4 if it is not set.

    Raises:
        RuntimeError: ``sim`` was enabled before with another number of devices, or the
            extension cannot be built.
        ValueError: The number of devices is not between 1 and 64.
    """
    count = _device_count_from_environment() if device_count is None else device_count
    if not 1 <= count <= _MAX_DEVICES:
        raise ValueError(f"sim can have 1 to {_MAX_DEVICES} devices, not {count}")
    extension = native.load()
    enabled = extension.device_count()
    if enabled not in (0, count):
        raise RuntimeError(f"sim already has {enabled} devices and cannot change to {count}")
    if enabled == 0:
        extension.start(count)
        features.remove(missing())
        _register()


def _device_count_from_environment() -> int:
    text = os.environ.get("SIM_DEVICE_COUNT", "4")
    if not text.isdecimal():
        raise ValueError(f"SIM_DEVICE_COUNT must be a number of devices, not {text!r}")
    return int(text)


def _register() -> None:
    rename_privateuse1_backend("sim")
    torch._register_device_module("sim", device_module)  # type: ignore[no-untyped-call] # torch
    generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    atexit.register(wait_for_autograd_threads)
