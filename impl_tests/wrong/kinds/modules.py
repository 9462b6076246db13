"""Kinds that change how a call runs the modules that it is given."""

import contextvars
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds.registry import Registry
from impl_tests.wrong.kinds.surroundings import (
    default_streams,
    each_autocast,
    in_thread,
    other_device,
)

__all__ = ["KINDS"]

KINDS = Registry()
#: Runs a forward: a function of the original forward and its arguments.
_Forward = Callable[..., Any]


def _forward(run_module: Callable[[_Forward], Any]) -> Callable[[_Forward], Any]:
    """Register a way to run the forward of each module among the arguments."""

    def run(call: Call) -> Any:
        with _replaced(call.modules(), run_module):
            return call.run()

    KINDS[f"modules-{run_module.__name__.replace('_', '-')}"] = run
    return run_module


@contextmanager
def _replaced(modules: list[nn.Module], run_module: Callable[[_Forward], Any]) -> Iterator[None]:
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


@KINDS.around
def modules_in_reverse(call: Call) -> Any:
    """Run the modules in reverse order, and return the outputs in this order."""
    names = [name for name in ("modules", "replicas") if name in call.arguments]
    changed = {name: list(call.arguments[name])[::-1] for name in names}
    return call.with_arguments(**changed).run()
