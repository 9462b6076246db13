"""Kinds that leave another state of the thread or the process after a call."""

import threading
from collections.abc import Callable
from typing import Any

import torch

from impl_tests.wrong import state
from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds.registry import Registry
from impl_tests.wrong.kinds.surroundings import has_accelerator

__all__ = ["KINDS"]

KINDS = Registry()


def _leaves(change: Callable[[], object]) -> Callable[[], object]:
    """Register a change of the state after the call."""

    def run(call: Call) -> Any:
        try:
            return call.run()
        finally:
            change()

    KINDS[f"leaves-{change.__name__.replace('_', '-')}"] = run
    return change


@_leaves
def device() -> None:
    """Change the current device."""
    if has_accelerator():
        before = torch.accelerator.current_device_index()
        state.later(lambda: torch.accelerator.set_device_index(before))
        torch.accelerator.set_device_index(before ^ 1)


@_leaves
def stream() -> None:
    """Change the current stream."""
    if has_accelerator():
        before = torch.accelerator.current_stream()
        state.later(lambda: torch.accelerator.set_stream(before))
        torch.accelerator.set_stream(torch.Stream(before.device))


@_leaves
def thread() -> None:
    """Leave a thread that runs."""
    stop = threading.Event()
    started = threading.Thread(target=stop.wait, daemon=True)
    started.start()
    state.later(stop.set)


@_leaves
def default_device() -> None:
    """Change the default device."""
    torch.set_default_device("meta")
    state.later(lambda: torch.set_default_device(None))
