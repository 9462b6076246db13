"""Bugs that real accelerator back ends have had, enabled one at a time."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch

from . import device_module, native

_MISSING_PRIMITIVES = "missing-primitives"
#: For each name: the description of the fault, with the issue that reported it.
FAULTS = {
    "zero-is-current": "ordinal 0 selects the current device (pytorch/pytorch 143239)",
    "device-left": "a copy makes its destination the current device (torch-xpu-ops 2706)",
    "dirty-memory": "new memory is not zero",
    "no-memory": "one device has no memory left",
    "garbled-peers": "copies between devices write zeros (pytorch/pytorch 107374)",
    _MISSING_PRIMITIVES: "torch._C lacks functions of CUDA builds (pytorch/pytorch 162152)",
    # The current device, and new tensors.
    "device-stuck": "set_device_index does nothing",
    "device-left-by-errors": "an exception in a block of device_index leaves its device current",
    "shared-device": "all threads have one current device",
    "resize-on-current-device": "memory of a resized storage is on the current device",
    "missing-is-zero": "a missing device is device 0",
    # Copies.
    "garbled-long-peers": "copies of 64 KiB or more between devices write zeros",
    "strides-ignored": "a copy ignores the strides of a tensor with an extent of 1",
    "truncated-bools": "a copy converts 0.5 to False",
    "conjugate-lost": "a copy drops the conjugate",
    "pageable-read-late": "a non_blocking copy reads pageable memory after it has returned",
    "pinned-freed-early": "pinned memory is used again before a copy from it ends",
    "copy-on-destination": "a non_blocking copy does not wait for its source",
    "copy-before-destination": "a non_blocking copy does not wait for work on its destination",
    "destination-before-copy": "the destination does not wait for a non_blocking copy",
    # Views.
    "writes-from-the-start": "a write to a part of a tensor begins at its first element",
    "copied-views": "view_as_real returns a copy",
    # Streams and events.
    "stream-of-current-device": "the current stream is the one of the current device",
    "refused-peer-waits": "a stream cannot wait for another device",
    "new-stream-on-device-0": "a new stream of the last device is on device 0",
    "one-stream": "a new stream is the default stream",
    "stream-of-all-devices": "a stream that becomes current is current on all devices",
    "shared-streams": "all threads have the same current streams",
    "stream-left": "the default stream does not become current again",
    "synchronous-operators": "the host waits for each operator",
    "no-waits": "a stream does not wait for another one of its device",
    "no-peer-waits": "a stream does not wait for another device",
    "stream-of-another-device": "an operator runs on a stream of the current device",
    "never-done": "the query of an event is always False",
    "first-record": "an event that is recorded again keeps its first position",
    "seconds": "elapsed_time is in seconds",
    "no-synchronize": "the host does not wait for a device",
    # Memory.
    "no-record-stream": "record_stream does nothing",
    "no-addresses": "data_ptr() is 0",
    "unpinned": "is_pinned() is False",
    # Random numbers.
    "seeds-ignored": "a seed has no effect",
    "generator-ignored": "random operators ignore the generator that they are given",
    "one-generator": "all devices have one generator",
    # Operators, modules, backward.
    "no-autocast": "autocast does nothing",
    "zeros-of-sparse": "dense results of sparse operators are zero",
    "contiguous-weights": "a convolution ignores the strides of its weight",
    "garbage-of-empty-batches": "sums over no elements are 7",
    "new-parameters": "module.to() creates new parameters",
    "transposed-products": "a product ignores that a matrix is transposed",
    "main-thread-only": "only the main thread can use other devices than the first",
    "streams-of-main-thread": "only the main thread can change its current stream",
    # Errors, and the device module.
    "unusable-after-errors": "an error of an operator makes the devices unusable",
    "mixed-devices": "operands may be on several devices",
    "fork-accepted": "a forked process uses the devices of its parent",
    "unavailable": "the device module says that no device is available",
    "one-device": "the device module counts one device",
    "always-zero": "the device module says that device 0 is current",
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


def check_fault(name: str) -> None:
    """Raise ValueError, with all names, if ``name`` is not one of ``FAULTS``."""
    if name not in FAULTS:
        raise ValueError(f"sim has no fault {name!r}; it has {', '.join(FAULTS)}")


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
    check_fault(name)
    if name in _IN_PYTHON:
        with _IN_PYTHON[name]():
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


def _leave_unless_error(block: torch.accelerator.device_index, *error: object) -> None:
    if error[0] is None:
        torch.accelerator.set_device_index(block.prev_idx)


def _replace(owner: object, name: str, function: Callable[..., Any]) -> Any:
    return partial(mock.patch.object, owner, name, function)


#: The faults that replace Python functions, and the blocks that enable them.
_IN_PYTHON: dict[str, Callable[[], AbstractContextManager[object]]] = {
    _MISSING_PRIMITIVES: _missing_primitives,
    "device-left-by-errors": _replace(
        torch.accelerator.device_index, "__exit__", _leave_unless_error
    ),
    "no-addresses": _replace(torch.Tensor, "data_ptr", lambda _: 0),
    "no-autocast": _replace(torch.autocast, "__enter__", lambda block: block),
    "unavailable": _replace(device_module, "is_available", lambda: False),
    "one-device": _replace(device_module, "device_count", lambda: 1),
    "always-zero": _replace(device_module, "current_device", lambda: 0),
}
