"""Ways in which real back ends have misbehaved, switched on one at a time."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from . import native

__all__ = ["FAULTS", "PRIMITIVES", "fault"]

_WITHOUT_PRIMITIVES = "missing-primitives"
#: By name, with where it was met.
FAULTS = {
    "zero-is-current": "ordinal 0 is taken for the current device (pytorch/pytorch 143239)",
    "device-left": "a copy between devices leaves the receiver current (torch-xpu-ops 2706)",
    "dirty-memory": "fresh memory is not zero",
    "no-memory": "one device has no memory left",
    "garbled-peers": "copies between devices deliver zeros (pytorch/pytorch 107374)",
    _WITHOUT_PRIMITIVES: "torch._C lacks what only builds for CUDA have (pytorch/pytorch 162152)",
}
#: What ``torch._C`` lacks then.
PRIMITIVES = (
    "_broadcast",
    "_broadcast_coalesced",
    "_broadcast_out",
    "_gather",
    "_gather_out",
    "_scatter",
    "_scatter_out",
)
#: Who finds them all the same: the reference, with which targets are compared.
_REFERENCE = ("torch.nn.parallel.", "spec_tests.cuda_stand_ins")

#: The switches that are on, the innermost last.
_on: list[tuple[str, int]] = [("", -1)]


@contextmanager
def fault(name: str, *, device: int = 0) -> Iterator[None]:
    """Let the devices misbehave inside the block, in all threads.

    Blocks nest: only the innermost fault is on. Afterwards the device is current again that was
    so before. Where ``torch._C`` lacks its primitives, torch.nn.parallel alone keeps them.

    Args:
        name: One of ``FAULTS``.
        device: The ordinal of the device that has no memory left.

    Raises:
        ValueError: There is no such fault.
    """
    if name == _WITHOUT_PRIMITIVES:
        with _without_primitives():
            yield
        return
    before = torch.accelerator.current_device_index()
    native.extension().set_fault(name, device)
    _on.append((name, device))
    try:
        yield
    finally:
        _on.pop()
        native.extension().set_fault(*_on[-1])
        torch.accelerator.set_device_index(before)


@contextmanager
def _without_primitives() -> Iterator[None]:
    names = vars(torch._C)
    hidden = {name: names.pop(name) for name in PRIMITIVES if name in names}

    def look_up(name: str) -> Any:
        asker = str(sys._getframe(1).f_globals.get("__name__"))
        if name in hidden and asker.startswith(_REFERENCE):
            return hidden[name]
        raise AttributeError(f"module 'torch._C' has no attribute '{name}'")

    names["__getattr__"] = look_up
    try:
        yield
    finally:
        del names["__getattr__"]
        names.update(hidden)
