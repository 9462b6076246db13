"""Kinds that change the threads in which a call runs its modules."""

import asyncio
import contextvars
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import torch

from impl_tests.wrong import state
from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds.modules import Forward, register_forward, replaced_forward
from impl_tests.wrong.kinds.registry import Registry
from impl_tests.wrong.kinds.surroundings import in_thread

__all__ = ["KINDS"]

KINDS = Registry()
_forward = register_forward(KINDS)


@_forward
def in_new_threads(forward: Forward) -> Any:
    """Run in a new thread."""
    return in_thread(forward)


@_forward
def in_new_threads_with_state(forward: Forward) -> Any:
    """Run in a new thread with the modes, the device and the streams of this thread."""
    contexts: list[Any] = [
        *map(torch.accelerator.current_stream, range(torch.accelerator.device_count())),
        torch.accelerator.device_index(torch.accelerator.current_device_index()),
        torch.inference_mode(torch.is_inference_mode_enabled()),
    ]
    for kind in ("cpu", "sim"):
        enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        contexts.append(torch.autocast(kind, dtype, enabled))
    grad, variables = torch.is_grad_enabled(), contextvars.copy_context()

    def run() -> Any:
        with ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context)
            with torch.set_grad_enabled(grad):
                return variables.run(forward)

    return in_thread(run)


@_forward
def in_threads_that_stay(forward: Forward) -> Any:
    """Run in a new thread that ends later than the call."""
    found: list[Any] = []
    returned, stop = threading.Event(), threading.Event()

    def run() -> None:
        try:
            found.append(forward())
        finally:
            returned.set()
            stop.wait()

    threading.Thread(target=run, daemon=True).start()
    state.later(stop.set)
    returned.wait()
    if not found:
        raise ValueError("perturbed")
    return found[0]


_PLACES = threading.BoundedSemaphore(64)


@_forward
def at_most_64_at_a_time(forward: Forward) -> Any:
    """Run while at most 63 other modules run."""
    if not _PLACES.acquire(timeout=2):
        raise RuntimeError("perturbed: 64 other modules run")
    try:
        return forward()
    finally:
        _PLACES.release()


@_forward
def untraced(forward: Forward) -> Any:
    """Run without the trace function and the profile function of the thread."""
    trace, profile = sys.gettrace(), sys.getprofile()
    sys.settrace(None)
    sys.setprofile(None)
    try:
        return forward()
    finally:
        sys.settrace(trace)
        sys.setprofile(profile)


@_forward
def in_a_running_loop(forward: Forward) -> Any:
    """Run in a coroutine of a new event loop."""
    found: list[Any] = []
    raised: list[BaseException] = []

    async def run() -> None:
        try:
            found.append(forward())
        except BaseException as error:  # a coroutine may not raise StopIteration
            raised.append(error)

    asyncio.run(run())
    if raised:
        raise raised[0]
    return found[0]


_POOL = ThreadPoolExecutor(1)


@_forward
def in_one_thread(forward: Forward) -> Any:
    """Run in a thread that stays and that all modules of all calls share."""
    return _POOL.submit(forward).result(timeout=2)


_RUNNING = threading.Lock()


@KINDS.around
def concurrent_calls_refused(call: Call) -> Any:
    """Refuse a call while another call runs, also in the same thread."""
    if not _RUNNING.acquire(blocking=False):
        raise RuntimeError("perturbed: another call runs")
    try:
        return call.run()
    finally:
        _RUNNING.release()


@KINDS.around
def errors_raised_early(call: Call) -> Any:
    """Raise the first error of a module without waiting for the other modules."""
    first: Future[Any] = Future()

    def run_module(forward: Forward) -> Any:
        try:
            return forward()
        except Exception as error:
            first.set_exception(error)
            raise

    with replaced_forward(call.modules(), run_module):
        pool = ThreadPoolExecutor(1)
        pool.submit(call.run).add_done_callback(lambda ended: _pass(ended, first))
        pool.shutdown(wait=False)
        return first.result()


def _pass(ended: "Future[Any]", first: "Future[Any]") -> None:
    if not first.done():
        first.set_result(ended.result())
