"""Kinds that change the arguments of a call, its results as a whole, or the state around it."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from impl_tests.weekly.perturbations.calls import Call, map_tensors, tensors_in
from impl_tests.weekly.perturbations.kinds.registry import UNDO, add, around, with_word
from impl_tests.weekly.perturbations.kinds.tensors import differ

#: Keeps references to arguments.
_KEPT: list[Any] = []


@around
def arguments_written(call: Call) -> Any:
    """Change the values of the tensors among the arguments after the call."""
    result = call.run()
    with torch.no_grad():
        for tensor in call.tensors():
            tensor.detach().mul_(2).add_(1)
    return result


@around
def arguments_kept(call: Call) -> Any:
    """Keep references to the arguments."""
    _KEPT.append(dict(call.arguments))
    return call.run()


@around
def arguments_returned(call: Call) -> Any:
    """Return arguments in place of tensors like them, and the module as the first replica."""
    result, modules, tensors = call.run(), call.modules(), call.tensors()
    if modules and isinstance(result, list):
        return [modules[0], *result[1:]]

    def own(tensor: Tensor) -> Tensor:
        alike = (t for t in tensors if (t.shape, t.device) == (tensor.shape, tensor.device))
        return next(alike, tensor)

    return map_tensors(own, result)


@around
def outputs_written(call: Call) -> Any:
    """Write other values to ``out`` after the call."""
    result = call.run()
    with torch.no_grad():
        for tensor in tensors_in(call.arguments.get("out")):
            tensor.detach().copy_(differ(tensor.detach()))
    return result


@with_word
def ignored(call: Call, name: str) -> Any:
    """Make the call with the default of the argument; with None if it has none."""
    default = call.bound.signature.parameters[name].default
    value = None if default is inspect.Parameter.empty else default
    return call.with_arguments(**{name: value}).run()


def _of_argument(change: Callable[[Any], Any]) -> None:
    """Add a change of one argument. An argument that cannot be changed is passed."""

    def run(call: Call, name: str) -> Any:
        try:
            changed = call.with_arguments(**{name: change(call.arguments[name])})
        except Exception:  # this argument is missing, or cannot be changed in this way
            changed = call
        return changed.run()

    add(change, run)


@_of_argument
def reversed_(value: Any) -> Any:
    """Reverse the argument, which is a sequence."""
    return value[::-1]


@_of_argument
def shortened(value: Any) -> Any:
    """Leave out the last member of the argument."""
    return value[:-1]


@around
def first_result_again(call: Call) -> Any:
    """Return the result of the first call with the same function again."""
    cache: dict[Any, Any] = call.function.__dict__ if hasattr(call.function, "__dict__") else {}
    if "_first_result" not in cache:
        cache["_first_result"] = call.run()
        UNDO.append(lambda: cache.pop("_first_result", None))
    return cache["_first_result"]


@around
def warning_added(call: Call) -> Any:
    """Warn."""
    result = call.run()
    warnings.warn("perturbed", UserWarning, stacklevel=2)
    return result


@around
def warnings_dropped(call: Call) -> Any:
    """Drop the warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call.run()


def _leave_device() -> None:
    before = torch.accelerator.current_device_index()
    UNDO.append(lambda: torch.accelerator.set_device_index(before))
    torch.accelerator.set_device_index(before ^ 1)


def _leave_stream() -> None:
    before = torch.accelerator.current_stream()
    UNDO.append(lambda: torch.accelerator.set_stream(before))
    torch.accelerator.set_stream(torch.Stream(before.device))


#: Word after the colon -> a function that leaves another state.
_LEFT: dict[str, Callable[[], None]] = {
    "device": _leave_device,
    "stream": _leave_stream,
}


@with_word
def leaves(call: Call, changed: str) -> Any:
    """Change the device or the stream of the thread."""
    try:
        return call.run()
    finally:
        _LEFT[changed]()
