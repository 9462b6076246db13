"""A simulated accelerator: device type ``sim`` with several devices, on the CPU.

It needs no hardware. Memory of a device is host memory that no other device can reach; an
operator runs the CPU's kernel; operators have finished when they return, so streams and events
order nothing, yet ``with races() as found:`` tells what they would have to order on hardware.
A device that is seeded as the CPU is draws the CPU's numbers.

What it cannot do raises NotImplementedError and names the operator: quantized and MKL-DNN
tensors, operators of other libraries than torchvision without a kernel for ``sim``. What it can
is compared with the CPU by ``python -m spec_tests.meta_tests.operator_sweep``.
"""

import atexit
import os

import torch
from torch.utils.backend_registration import (
    generate_methods_for_privateuse1_backend,
    rename_privateuse1_backend,
)

from . import device_module, native
from .exit import wait_for_autograd_threads
from .faults import FAULTS, PRIMITIVES, fault
from .race_detector import Access, Race, races

__all__ = ["FAULTS", "PRIMITIVES", "Access", "Race", "enable", "fault", "races"]

_MOST_DEVICES = 64


def enable(device_count: int | None = None) -> None:
    """Register the device type ``sim`` with ``device_count`` devices in this process.

    The first call of all compiles an extension (about half a minute, then cached). Call it
    before the first backward pass of the process: that is when PyTorch starts one thread for
    each device it knows.

    Args:
        device_count: How many devices there shall be, 1 to 64. ``None`` stands for the number
            in the environment variable ``SIM_DEVICE_COUNT``, or 4.

    Raises:
        RuntimeError: It was enabled before with another number of devices, or the extension
            cannot be built.
        ValueError: The number of devices is not one from 1 to 64.
    """
    wanted = _from_environment() if device_count is None else device_count
    if not 1 <= wanted <= _MOST_DEVICES:
        raise ValueError(f"sim can have 1 to {_MOST_DEVICES} devices, not {wanted}")
    extension = native.load()
    present = extension.device_count()
    if present not in (0, wanted):
        raise RuntimeError(f"sim has {present} devices already and cannot be given {wanted}")
    if present == 0:
        extension.start(wanted)
        _register()


def _from_environment() -> int:
    text = os.environ.get("SIM_DEVICE_COUNT", "4")
    if not text.isdecimal():
        raise ValueError(f"SIM_DEVICE_COUNT is no number of devices: {text!r}")
    return int(text)


def _register() -> None:
    rename_privateuse1_backend("sim")
    torch._register_device_module("sim", device_module)  # type: ignore[no-untyped-call] # torch
    generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    atexit.register(wait_for_autograd_threads)
