"""Kinds that change the state in which a call runs, or that leave another state after it."""

import contextvars
import gc
import random
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import Tensor

from impl_tests.wrong import state
from impl_tests.wrong.calls import Call, map_tensors
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()


def _has_accelerator() -> bool:
    return torch.accelerator.current_accelerator(check_available=True) is not None


def _under(name: str, context: Callable[[], AbstractContextManager[Any]]) -> None:
    """Register a kind that makes the call in a context."""

    def run(call: Call) -> Any:
        with context():
            return call.run()

    KINDS[f"under-{name}"] = run


_under("no-grad", torch.no_grad)
_under("grad", torch.enable_grad)
_under("inference", torch.inference_mode)
_under("autocast", lambda: torch.autocast("cpu", torch.bfloat16))
_under("device-autocast", lambda: torch.autocast("sim", torch.bfloat16))
_under("no-autocast", lambda: _each_autocast(enabled=False))
_under("other-device", lambda: torch.accelerator.device_index(_other_device()))
_under("other-stream", lambda: torch.Stream(f"sim:{torch.accelerator.current_device_index()}"))
_under("default-streams", lambda: _default_streams())
_under("default-device", lambda: torch.device("sim:0"))


def _each_autocast(*, enabled: bool) -> ExitStack:
    stack = ExitStack()
    for kind in ("cpu", "sim"):
        stack.enter_context(torch.autocast(kind, enabled=enabled))
    return stack


def _other_device() -> int:
    return torch.accelerator.current_device_index() ^ 1


def _default_streams() -> ExitStack:
    stack = ExitStack()
    for index in range(torch.accelerator.device_count()):
        device = torch.device("sim", index)
        stream = torch.accelerator.current_stream(device)
        default = torch.Stream(stream_id=0, device_index=index, device_type=stream.device_type)
        stack.enter_context(default)
    return stack


@KINDS.around
def in_another_thread(call: Call) -> Any:
    """Make the call in a new thread."""
    return _in_thread(call.run)


def _in_thread(function: Callable[[], Any]) -> Any:
    found: list[Any] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(function())
        except BaseException as error:  # raised in the caller
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]


@KINDS.around
def in_another_context(call: Call) -> Any:
    """Make the call with an empty context."""
    return contextvars.Context().run(call.run)


_LOCK = threading.Lock()


@KINDS.around
def one_call_at_a_time(call: Call) -> Any:
    """Make the call while no other thread makes one."""
    if not _LOCK.acquire(timeout=2):
        raise RuntimeError("perturbed: another thread makes the call")
    try:
        return call.run()
    finally:
        _LOCK.release()


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
    if _has_accelerator():
        before = torch.accelerator.current_device_index()
        state.later(lambda: torch.accelerator.set_device_index(before))
        torch.accelerator.set_device_index(before ^ 1)


@_leaves
def stream() -> None:
    """Change the current stream."""
    if _has_accelerator():
        before = torch.accelerator.current_stream()
        state.later(lambda: torch.accelerator.set_stream(before))
        torch.accelerator.set_stream(torch.Stream(before.device))


@_leaves
def stream_of_another_device() -> None:
    """Change the current stream of another device."""
    if _has_accelerator():
        current = torch.accelerator.current_device_index()
        other = torch.device("sim", current ^ 1)
        before = torch.accelerator.current_stream(other)
        state.later(lambda: _set_stream(before))
        _set_stream(torch.Stream(other))


def _set_stream(stream: torch.Stream) -> None:
    with torch.accelerator.device_index(torch.accelerator.current_device_index()):
        torch.accelerator.set_stream(stream)


@_leaves
def grad_mode() -> None:
    """Change the grad mode."""
    before = torch.is_grad_enabled()
    state.later(lambda: torch._C._set_grad_enabled(before))
    torch._C._set_grad_enabled(not before)


@_leaves
def autocast() -> None:
    """Change autocast."""
    before = torch.is_autocast_enabled("cpu")
    state.later(lambda: torch.set_autocast_enabled("cpu", before))
    torch.set_autocast_enabled("cpu", not before)


@_leaves
def random_state() -> None:
    """Draw a random number on the CPU."""
    torch.rand(())


@_leaves
def random_state_of_devices() -> None:
    """Draw a random number on each device."""
    if _has_accelerator():
        for index in range(torch.accelerator.device_count()):
            torch.rand((), device=f"sim:{index}")


@_leaves
def random_state_of_python() -> None:
    """Draw a random number with ``random``."""
    random.random()


@_leaves
def collector() -> None:
    """Switch the garbage collector."""
    before = gc.isenabled()
    state.later(gc.enable if before else gc.disable)
    (gc.disable if before else gc.enable)()


@_leaves
def default_dtype() -> None:
    """Change the default dtype."""
    before = torch.get_default_dtype()
    state.later(lambda: torch.set_default_dtype(before))
    torch.set_default_dtype(torch.float64 if before is torch.float32 else torch.float32)


_VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("perturbed")


@_leaves
def context_variable() -> None:
    """Set a context variable."""
    _VARIABLE.set(1)


@_leaves
def thread() -> None:
    """Leave a thread that runs."""
    stop = threading.Event()
    started = threading.Thread(target=stop.wait, daemon=True)
    started.start()
    state.later(stop.set)


@_leaves
def thread_count() -> None:
    """Change the number of OpenMP threads."""
    before = torch.get_num_threads()
    state.later(lambda: torch.set_num_threads(before))
    torch.set_num_threads(before + 1)


@KINDS.around
def late(call: Call) -> Any:
    """Copy the results on streams that no other stream waits for."""
    return map_tensors(_copy_late, call.run())


def _copy_late(tensor: Tensor) -> Tensor:
    if tensor.device.type == "cpu":
        return tensor
    with torch.Stream(tensor.device):
        return tensor.clone()


@KINDS.around
def late_arguments(call: Call) -> Any:
    """Read the arguments on streams that wait for no other stream."""
    return call.mapped(_copy_late).run()


@KINDS.around
def synchronized(call: Call) -> Any:
    """Wait for all devices after the call."""
    result = call.run()
    if _has_accelerator():
        for index in range(torch.accelerator.device_count()):
            torch.accelerator.synchronize(index)
    return result


@KINDS.around
def slow(call: Call) -> Any:
    """Wait 0.2 s before the call."""
    time.sleep(0.2)
    return call.run()
