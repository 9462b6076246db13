"""parallel_apply with a new thread for each module, so that modules may wait for each other."""

import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.oracle._devices import as_device
from spec_tests.oracle.comm import DeviceLike


def get_a_var(obj: Any) -> Tensor | None:
    """Return the first tensor in nested lists, tuples and dictionaries; None if there is none."""
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


def check_lengths(modules: Sequence[object], **others: Sequence[object] | None) -> None:
    """Raise an AssertionError for the first of ``others`` with another length."""
    for name, values in others.items():
        if values is not None and len(values) != len(modules):
            raise AssertionError(
                f"The number of modules {len(modules)} is not equal to "
                f"the number of {name} {len(values)}"
            )


def _place_of(value: Any) -> torch.device:
    found = get_a_var(value)
    return as_device(None) if found is None else found.device


def _call(
    module: nn.Module, args: Any, named: Mapping[str, Any], device: torch.device, grad: bool
) -> Any:
    arguments = args if isinstance(args, (list, tuple)) else (args,)
    with torch.set_grad_enabled(grad), torch.accelerator.device_index(device.index):
        return module(*arguments, **named)


def with_origin(error: BaseException, index: int, device: torch.device) -> BaseException:
    """Return an error of the same class whose text names the replica and holds the traceback."""
    trace = "".join(traceback.format_exception(error))
    where = f"Caught {type(error).__name__} in replica {index} on device {device.index}."
    return make_error(type(error), f"{where}\nOriginal {trace}")


class UnquotedText(str):
    """A text without quotes in its ``repr``, which a KeyError prints."""

    __slots__ = ()
    __repr__ = str.__str__


def make_error(kind: Any, text: str) -> BaseException:
    """Return a ``kind`` with ``text``, passed as ``message`` if the class has that attribute.

    If the constructor raises, return a RuntimeError.
    """
    if issubclass(kind, KeyError):
        text = UnquotedText(text)
    has_message = getattr(kind, "message", None)
    try:
        found: BaseException = kind(message=text) if has_message else kind(text)
    except Exception:
        return RuntimeError(text)
    return found
