"""Bugs that real accelerator back ends have had, enabled one at a time."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from . import native

__all__ = ["FAULTS", "PRIMITIVES", "fault"]

_MISSING_PRIMITIVES = "missing-primitives"
#: Name -> description of the fault, with the issue that reported it.
FAULTS = {
    "zero-is-current": "ordinal 0 selects the current device (pytorch/pytorch 143239)",
    "device-left": "a copy makes its destination the current device (torch-xpu-ops 2706)",
    "dirty-memory": "new memory is not zero",
    "no-memory": "one device has no memory left",
    "garbled-peers": "copies between devices write zeros (pytorch/pytorch 107374)",
    _MISSING_PRIMITIVES: "torch._C lacks functions of CUDA builds (pytorch/pytorch 162152)",
}
#: The functions of ``torch._C`` that the fault "missing-primitives" hides.
PRIMITIVES = (
    "_broadcast",
    "_broadcast_coalesced",
    "_broadcast_out",
    "_gather",
    "_gather_out",
    "_scatter",
    "_scatter_out",
)
#: Modules whose names begin with one of these still find the functions that the fault hides.
_REFERENCE_MODULES = ("torch.nn.parallel.", "spec_tests.cuda_stand_ins")

#: For each open `fault` block, innermost last: the fault and its device. The first pair means
#: that no fault is enabled.
_active: list[tuple[str, int]] = [("", -1)]


@contextmanager
def fault(name: str, *, device: int = 0) -> Iterator[None]:
    """Enable a fault of the devices inside the block, in all threads.

    Blocks nest: only the innermost fault is active. The end of the block restores the current
    device. torch.nn.parallel still finds the functions that "missing-primitives" hides.

    Args:
        name: One of ``FAULTS``.
        device: The ordinal of the device without memory, for "no-memory".

    Raises:
        ValueError: ``name`` is not one of ``FAULTS``.
    """
    if name == _MISSING_PRIMITIVES:
        with _missing_primitives():
            yield
        return
    previous_device = torch.accelerator.current_device_index()
    native.extension().set_fault(name, device)
    _active.append((name, device))
    try:
        yield
    finally:
        _active.pop()
        native.extension().set_fault(*_active[-1])
        torch.accelerator.set_device_index(previous_device)


@contextmanager
def _missing_primitives() -> Iterator[None]:
    names = vars(torch._C)
    hidden = {name: names.pop(name) for name in PRIMITIVES if name in names}

    def module_getattr(name: str) -> Any:
        caller = str(sys._getframe(1).f_globals.get("__name__"))
        if name in hidden and caller.startswith(_REFERENCE_MODULES):
            return hidden[name]
        raise AttributeError(f"module 'torch._C' has no attribute '{name}'")

    names["__getattr__"] = module_getattr
    try:
        yield
    finally:
        del names["__getattr__"]
        names.update(hidden)
