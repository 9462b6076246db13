"""Kinds that change how a call runs the modules that it is given, and the modules themselves."""

import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from impl_tests.weekly.perturbations.calls import Call
from impl_tests.weekly.perturbations.kinds.registry import add, around, with_word

__all__ = ["Forward", "replaced_forward"]

#: Runs the forward of a module.
Forward = Callable[[], Any]
#: The last pool has a thread that stays.
_POOLS = [ThreadPoolExecutor(1)]


@contextmanager
def replaced_forward(
    modules: list[nn.Module], run_module: Callable[[Forward], Any]
) -> Iterator[None]:
    """Replace the forward of each module in a ``with`` block."""
    own = [(module, "forward" in vars(module), module.forward) for module in modules]

    def replacement(forward: Callable[..., Any]) -> Callable[..., Any]:
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


def _of_forward(run_module: Callable[[Forward], Any]) -> None:
    """Add a way to run the forward of each module in a call."""

    def run(call: Call, word: str) -> Any:
        with replaced_forward(call.modules(), run_module):
            return call.run()

    add(run_module, run, "modules-")


@_of_forward
def on_another_device(forward: Forward) -> Any:
    """Make another device current while a module runs."""
    with torch.accelerator.device_index(torch.accelerator.current_device_index() ^ 1):
        return forward()


@_of_forward
def in_new_threads(forward: Forward) -> Any:
    """Run each module in a new thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(forward).result()


@_of_forward
def in_one_thread(forward: Forward) -> Any:
    """Run the modules in a thread that stays and that all modules of all calls share."""
    running = _POOLS[-1].submit(forward)
    try:
        return running.result(timeout=2)
    except TimeoutError:
        # The thread waits for a module that cannot run. Later calls need another one.
        _POOLS.append(ThreadPoolExecutor(1))
        raise


@with_word
def own(call: Call, step: str) -> Any:
    """Use a method of DataParallel in place of an overriding one."""
    wrapper, name = call.arguments["self"], step.replace("-", "_")
    base = next(kind for kind in type(wrapper).__mro__ if kind.__name__ == "DataParallel")
    vars(wrapper)[name] = types.MethodType(vars(base)[name], wrapper)
    try:
        return call.run()
    finally:
        del vars(wrapper)[name]


@around
def given_modules_changed(call: Call) -> Any:
    """Replace the parameters of the given modules after the call, with gradients of zeros."""
    modules = call.modules()
    try:
        return call.run()
    finally:
        for member in (member for module in modules for member in module.modules()):
            for name, parameter in member._parameters.items():
                if parameter is not None:
                    found = nn.Parameter(parameter.detach().clone())
                    found.grad = torch.zeros_like(found)
                    member._parameters[name] = found
