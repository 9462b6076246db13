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

import torch
from torch.utils.backend_registration import (
    generate_methods_for_privateuse1_backend,
    rename_privateuse1_backend,
)

from . import device_module, features, native
from .build import MissingToolError
from .cuda_names import use_cuda_names
from .faults import FAULTS, PRIMITIVES, check_fault, fault
from .features import FEATURES, missing, switch_off
from .race_detector import Access, Race, races
from .wait_at_exit import wait_for_autograd_threads

__all__ = [
    "FAULTS",
    "FEATURES",
    "PRIMITIVES",
    "Access",
    "MissingToolError",
    "Race",
    "check_fault",
    "enable",
    "fault",
    "missing",
    "races",
    "switch_off",
]

_MAX_DEVICES = 64
#: The oldest release of PyTorch that the simulator supports.
_OLDEST = "2.11"


def enable(device_count: int = 4, *, as_cuda: bool = False) -> None:
    """Register the device type ``sim`` with ``device_count`` devices in this process.

    The first call on a machine compiles an extension, in about half a minute, and caches it.
    Call ``enable`` before the first backward pass of the process: PyTorch then starts one
    autograd thread for each registered device.

    Args:
        device_count: The number of devices, 1 to 64.
        as_cuda: Whether functions of PyTorch that name CUDA mean these devices, for the rest of
            the process; see `cuda_names`.

    Raises:
        RuntimeError: ``sim`` was enabled before with another number of devices, PyTorch is older
            than 2.11, the extension cannot be built, or ``as_cuda`` would hide CUDA devices.
        ValueError: The number of devices is not between 1 and 64.
    """
    if not 1 <= device_count <= _MAX_DEVICES:
        raise ValueError(f"sim can have 1 to {_MAX_DEVICES} devices, not {device_count}")
    if torch.torch_version.TorchVersion(torch.__version__) < _OLDEST:
        raise RuntimeError(f"sim needs PyTorch {_OLDEST} or newer, this is {torch.__version__}")
    extension = native.load()
    enabled = extension.device_count()
    if enabled not in (0, device_count):
        text = f"sim already has {enabled} devices and cannot change to {device_count}"
        raise RuntimeError(text)
    if enabled == 0:
        extension.start(device_count)
        features.remove(missing())
        _register()
    if as_cuda:
        use_cuda_names()


def _register() -> None:
    rename_privateuse1_backend("sim")
    torch._register_device_module("sim", device_module)  # type: ignore[no-untyped-call] # torch
    generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    atexit.register(wait_for_autograd_threads)
