"""Kinds that change how a call runs the modules that it is given."""

import contextvars
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from impl_tests.wrong import state
from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds.registry import Registry
from impl_tests.wrong.kinds.surroundings import each_autocast, other_device

__all__ = ["KINDS", "Forward", "register_forward", "replaced_forward"]

KINDS = Registry()
#: Runs a forward: a function of the original forward and its arguments.
Forward = Callable[..., Any]
#: Gets the forward of a module and runs it.
Run = Callable[[Forward], Any]


def register_forward(kinds: Registry) -> Callable[[Run], Run]:
    """Return a decorator that registers a way to run the forward of each module in a call."""

    def decorator(run_module: Run) -> Run:
        def run(call: Call) -> Any:
            with replaced_forward(call.modules(), run_module):
                return call.run()

        kinds[f"modules-{run_module.__name__.replace('_', '-')}"] = run
        return run_module

    return decorator


_forward = register_forward(KINDS)


@contextmanager
def replaced_forward(modules: list[nn.Module], run_module: Run) -> Iterator[None]:
    """Replace the forward of each module in a ``with`` block."""
    own = [(module, "forward" in vars(module), module.forward) for module in modules]

    def replacement(forward: Forward) -> Forward:
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
def with_grad(forward: Forward) -> Any:
    """Switch grad mode on."""
    with torch.enable_grad():
        return forward()


@_forward
def out_of_inference(forward: Forward) -> Any:
    """Switch inference mode off."""
    with torch.inference_mode(mode=False):
        return forward()


@_forward
def without_autocast(forward: Forward) -> Any:
    """Switch autocast off."""
    with each_autocast(enabled=False):
        return forward()


@_forward
def on_another_device(forward: Forward) -> Any:
    """Make another device current."""
    with torch.accelerator.device_index(other_device()):
        return forward()


@_forward
def in_an_empty_context(forward: Forward) -> Any:
    """Run without context variables."""
    return contextvars.Context().run(forward)


_KEPT: list[Any] = []


@_forward
def keeping_the_locals_of_a_failure(forward: Forward) -> Any:
    """Keep references to the local variables of the frames in which a module failed."""
    try:
        return forward()
    except Exception as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        _KEPT.extend(dict(frame.f_locals) for frame in frames)
        raise


@KINDS.around
def modules_leaving_their_grad_mode(call: Call) -> Any:
    """Leave the caller in the grad mode in which the last module ended."""
    modes: list[bool] = []

    def run_module(forward: Forward) -> Any:
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


@_forward
def under_another_default_dtype(forward: Forward) -> Any:
    """Run with the default settings of the process."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        return forward()
    finally:
        torch.set_default_dtype(before)
