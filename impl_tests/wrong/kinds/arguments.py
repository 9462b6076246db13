"""Kinds that change the arguments of a call."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS", "PARAMETERS"]

KINDS = Registry()
#: The kinds that change one argument: functions of a call and of the argument's name.
PARAMETERS: dict[str, Callable[[Call, str], Any]] = {}


@KINDS.around
def arguments_cloned(call: Call) -> Any:
    """Pass clones of the tensors."""
    return call.mapped(Tensor.clone).run()


@KINDS.around
def arguments_written(call: Call) -> Any:
    """Change the values of the tensors among the arguments after the call."""
    result = call.run()
    with torch.no_grad():
        for tensor in call.tensors():
            tensor.detach().mul_(2).add_(1)
    return result


def _parameter(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Register a change of one argument. An argument that cannot be changed is passed."""

    def run(call: Call, name: str) -> Any:
        value = call.arguments[name]
        try:
            changed = change(value)
        except Exception:  # this argument cannot be changed in this way
            changed = value
        return call.with_arguments(**{name: changed}).run()

    PARAMETERS[change.__name__.strip("_").replace("_", "-")] = run
    return change


def _ignored(call: Call, name: str) -> Any:
    return call.without_argument(name).run()


PARAMETERS["ignored"] = _ignored


@_parameter
def reversed_(value: Any) -> Any:
    """Reverse a sequence."""
    return value[::-1]


@_parameter
def rotated(value: Any) -> Any:
    """Put the last member first."""
    return type(value)([value[-1], *value[:-1]])


@_parameter
def shortened(value: Any) -> Any:
    """Leave out the last member."""
    return value[:-1]


@_parameter
def without_repeats(value: Any) -> Any:
    """Leave out repeated members."""
    return type(value)(dict.fromkeys(value))


@_parameter
def increased(value: Any) -> Any:
    """Add one to a number; negate a truth value; name the next device."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (torch.device, str)):
        device = torch.device(value)
        return torch.device(device.type, (device.index or 0) ^ 1)
    return value ^ 1 if value >= 0 else value + 1


@_parameter
def zero(value: Any) -> Any:
    """Pass zero in place of a number."""
    return type(value)(0)
