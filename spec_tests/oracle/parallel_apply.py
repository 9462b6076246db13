"""Modules called, each in a thread of its own so that they may wait for each other."""

import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.oracle._devices import as_device
from spec_tests.oracle.comm import DeviceLike


def get_a_var(obj: Any) -> Tensor | None:
    """The first tensor in nested lists, tuples and dictionaries; None if there is none."""
    if isinstance(obj, Tensor):
        return obj
    members = obj.items() if isinstance(obj, dict) else obj
    if not isinstance(obj, (list, tuple, dict)):
        return None
    return next((found for each in members if (found := get_a_var(each)) is not None), None)


def parallel_apply(
    modules: Sequence[nn.Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[Mapping[str, Any]] | None = None,
    devices: Sequence[DeviceLike] | None = None,
) -> list[Any]:
    """Return the output of each module; raise the error of the first that fails."""
    check_lengths(modules, inputs=inputs, kwargs_tup=kwargs_tup, devices=devices)
    named = [{}] * len(modules) if kwargs_tup is None else kwargs_tup
    places = [_place_of(x) for x in inputs] if devices is None else [as_device(x) for x in devices]
    grad = torch.is_grad_enabled()
    with ThreadPoolExecutor(len(modules)) as threads:
        calls = [
            threads.submit(_call, *each, grad)
            for each in zip(modules, inputs, named, places, strict=True)
        ]
    for index, (call, device) in enumerate(zip(calls, places, strict=False)):
        error = call.exception()
        if error is not None:
            raise with_origin(error, index, device)
    return [call.result() for call in calls]


def check_lengths(modules: Sequence[object], **rest: Sequence[object] | None) -> None:
    """Refuse the first of the ``rest`` that is there and has another length."""
    for name, values in rest.items():
        if values is not None and len(values) != len(modules):
            raise AssertionError(
                f"The number of modules {len(modules)} is not equal to "
                f"the number of {name} {len(values)}"
            )


def _place_of(value: Any) -> torch.device:
    found = get_a_var(value)
    return as_device(None) if found is None else found.device


def _call(
    module: nn.Module, given: Any, named: Mapping[str, Any], device: torch.device, grad: bool
) -> Any:
    arguments = given if isinstance(given, (list, tuple)) else (given,)
    with torch.set_grad_enabled(grad), torch.accelerator.device_index(device.index):
        return module(*arguments, **named)


def with_origin(error: BaseException, index: int, device: torch.device) -> BaseException:
    """The error anew, of its own class, saying where it was raised and how."""
    story = "".join(traceback.format_exception(error))
    where = f"Caught {type(error).__name__} in replica {index} on device {device.index}."
    return make_error(type(error), f"{where}\nOriginal {story}")


class UnquotedText(str):
    """A text that is printed as it stands, though a KeyError asks for its repr."""

    __slots__ = ()
    __repr__ = str.__str__


def make_error(kind: Any, text: str) -> BaseException:
    """An exception of the class with this text, by keyword where the class has a message.

    A class that takes no text so makes a RuntimeError.
    """
    if issubclass(kind, KeyError):
        text = UnquotedText(text)
    has_message = getattr(kind, "message", None)
    try:
        found: BaseException = kind(message=text) if has_message else kind(text)
    except Exception:
        return RuntimeError(text)
    return found
