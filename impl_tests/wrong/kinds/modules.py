"""Kinds that change how a call runs the modules that it is given."""

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from impl_tests.wrong import state
from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds.registry import Registry
from impl_tests.wrong.kinds.surroundings import (
    default_streams,
    each_autocast,
    in_thread,
    other_device,
)

__all__ = ["KINDS", "replaced_forward"]

KINDS = Registry()
#: Runs a forward: a function of the original forward and its arguments.
_Forward = Callable[..., Any]


def _forward(run_module: Callable[[_Forward], Any]) -> Callable[[_Forward], Any]:
    """Register a way to run the forward of each module among the arguments."""

    def run(call: Call) -> Any:
        with replaced_forward(call.modules(), run_module):
            return call.run()

    KINDS[f"modules-{run_module.__name__.replace('_', '-')}"] = run
    return run_module


@contextmanager
def replaced_forward(
    modules: list[nn.Module], run_module: Callable[[_Forward], Any]
) -> Iterator[None]:
    """Replace the forward of each module in a ``with`` block."""
    own = [(module, "forward" in vars(module), module.forward) for module in modules]

    def replacement(forward: _Forward) -> _Forward:
        return lambda *args, **kwargs: run_module(lambda: forward(*args, **kwargs))

    for module, _, forward in {id(entry[0]): entry for entry in own}.values():
        vars(module)["forward"] = replacement(forward)
    try:
        yield
    finally:
        for module, had_own, forward in own:
            if had_own:
                vars(module)["forward"] = forward
            else:
                vars(module).pop("forward", None)


@_forward
def without_grad(forward: _Forward) -> Any:
    """Switch grad mode off."""
    with torch.no_grad():
        return forward()


@_forward
def with_grad(forward: _Forward) -> Any:
    """Switch grad mode on."""
    with torch.enable_grad():
        return forward()


@_forward
def out_of_inference(forward: _Forward) -> Any:
    """Switch inference mode off."""
    with torch.inference_mode(mode=False):
        return forward()


@_forward
def without_autocast(forward: _Forward) -> Any:
    """Switch autocast off."""
    with each_autocast(enabled=False):
        return forward()


@_forward
def with_autocast(forward: _Forward) -> Any:
    """Switch autocast on."""
    with torch.autocast("cpu", torch.bfloat16), torch.autocast("sim", torch.bfloat16):
        return forward()


@_forward
def without_autocast_cache(forward: _Forward) -> Any:
    """Switch the cache of autocast."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(not before)
    try:
        return forward()
    finally:
        torch.set_autocast_cache_enabled(before)


@_forward
def on_another_device(forward: _Forward) -> Any:
    """Make another device current."""
    with torch.accelerator.device_index(other_device()):
        return forward()


@_forward
def on_default_streams(forward: _Forward) -> Any:
    """Make the default streams current."""
    with default_streams():
        return forward()


@_forward
def on_another_stream(forward: _Forward) -> Any:
    """Make a new stream current."""
    with torch.Stream(f"sim:{torch.accelerator.current_device_index()}"):
        return forward()


@_forward
def in_an_empty_context(forward: _Forward) -> Any:
    """Run without context variables."""
    return contextvars.Context().run(forward)


@_forward
def in_new_threads(forward: _Forward) -> Any:
    """Run in a new thread."""
    return in_thread(forward)


@_forward
def in_new_threads_with_state(forward: _Forward) -> Any:
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
def under_another_default_device(forward: _Forward) -> Any:
    """Set a default device."""
    with torch.device("meta"):
        return forward()


@_forward
def twice(forward: _Forward) -> Any:
    """Run twice."""
    forward()
    return forward()


@_forward
def returning_none(forward: _Forward) -> Any:
    """Return None."""
    forward()


@_forward
def without_errors(forward: _Forward) -> Any:
    """Return None in place of raising an error."""
    try:
        return forward()
    except Exception:  # the wrong behaviour
        return None


@_forward
def with_other_errors(forward: _Forward) -> Any:
    """Raise another error."""
    try:
        return forward()
    except BaseException as error:  # the wrong behaviour
        raise ArithmeticError("perturbed") from error


@_forward
def with_plain_errors(forward: _Forward) -> Any:
    """Raise an error of the parent class."""
    try:
        return forward()
    except BaseException as error:  # the wrong behaviour
        raise RuntimeError(str(error)) from None


_LOCK = threading.Lock()


@_forward
def one_after_the_other(forward: _Forward) -> Any:
    """Run while no other module runs."""
    if not _LOCK.acquire(timeout=2):
        raise RuntimeError("perturbed: another module runs")
    try:
        return forward()
    finally:
        _LOCK.release()


@_forward
def untraced(forward: _Forward) -> Any:
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
def in_a_running_loop(forward: _Forward) -> Any:
    """Run in a coroutine of a new event loop."""

    async def run() -> Any:
        return forward()

    return asyncio.run(run())


@KINDS.around
def modules_leaving_their_grad_mode(call: Call) -> Any:
    """Give the caller the grad mode in which the last module ended."""
    modes: list[bool] = []

    def run_module(forward: _Forward) -> Any:
        try:
            return forward()
        finally:
            modes.append(torch.is_grad_enabled())

    before = torch.is_grad_enabled()
    state.later(lambda: torch._C._set_grad_enabled(before))
    try:
        with replaced_forward(call.modules(), run_module):
            return call.run()
    finally:
        torch._C._set_grad_enabled(modes[-1] if modes else before)


@KINDS.around
def modules_in_reverse(call: Call) -> Any:
    """Run the modules in reverse order, and return the outputs in this order."""
    names = [name for name in ("modules", "replicas") if name in call.arguments]
    changed = {name: list(call.arguments[name])[::-1] for name in names}
    return call.with_arguments(**changed).run()
