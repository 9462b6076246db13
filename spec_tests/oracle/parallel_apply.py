"""parallel_apply with one thread for each module, so that modules can wait for each other."""

import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.machine.clauses import exception_of
from spec_tests.oracle._devices import as_device
from spec_tests.oracle.comm import DeviceLike


def get_a_var(obj: Any) -> Tensor | None:
    """Return the first tensor in nested lists, tuples and dictionaries; None if there is none."""
    if isinstance(obj, Tensor):
        return obj
    members = obj.items() if isinstance(obj, dict) else obj
    if not isinstance(obj, (list, tuple, dict)):
        return None
    return next((tensor for each in members if (tensor := get_a_var(each)) is not None), None)


def parallel_apply(
    modules: Sequence[nn.Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[Mapping[str, Any]] | None = None,
    devices: Sequence[DeviceLike] | None = None,
) -> list[Any]:
    """Return the output of each module, or raise the error of the first module that failed."""
    check_lengths(modules, inputs=inputs, kwargs_tup=kwargs_tup, devices=devices)
    keywords = [{}] * len(modules) if kwargs_tup is None else kwargs_tup
    targets = list(map(_device_of, inputs) if devices is None else map(as_device, devices))
    streams = [*map(_current_stream, targets)]
    grad_enabled = torch.is_grad_enabled()
    with ThreadPoolExecutor(len(modules)) as threads:
        calls = [
            threads.submit(_call, *arguments, grad_enabled)
            for arguments in zip(modules, inputs, keywords, targets, streams, strict=True)
        ]
    for index, (call, device) in enumerate(zip(calls, targets, strict=False)):
        error = call.exception()
        if error is not None:
            raise error_with_origin(error, index, device)
    return [call.result() for call in calls]


def check_lengths(modules: Sequence[object], **others: Sequence[object] | None) -> None:
    """Raise an AssertionError for the first of ``others`` that is not as long as ``modules``."""
    for name, values in others.items():
        if values is not None and len(values) != len(modules):
            counts = {"modules": len(modules), "count": len(values)}
            raise exception_of("parallel_apply.lengths", name=name, **counts)


def _device_of(value: Any) -> torch.device:
    tensor = get_a_var(value)
    return as_device(None) if tensor is None else tensor.device


def _current_stream(device: torch.device) -> torch.Stream | None:
    """Return the current stream of ``device``; None for the CPU and for a missing device.

    A back end may end the process if it is asked for the stream of a missing device.
    """
    if device.type == "cpu" or device.index >= torch.accelerator.device_count():
        return None
    return torch.accelerator.current_stream(device)


def _call(
    module: nn.Module,
    args: Any,
    kwargs: Mapping[str, Any],
    device: torch.device,
    stream: torch.Stream | None,
    grad_enabled: bool,
) -> Any:
    arguments = args if isinstance(args, (list, tuple)) else (args,)
    if device.type != "cpu" and device.index >= torch.accelerator.device_count():
        torch.accelerator.set_device_index(device.index)  # Raises the error of a missing device.
    if stream is not None and stream != _current_stream(device):
        torch.accelerator.set_stream(stream)
    with torch.set_grad_enabled(grad_enabled), torch.accelerator.device_index(device.index):
        return module(*arguments, **kwargs)


def error_with_origin(error: BaseException, index: int, device: torch.device) -> BaseException:
    """Return a new error that names the replica, if possible of the class of ``error``.

    The text of the new error includes the traceback of ``error``.
    """
    trace = "".join(traceback.format_exception(error))
    origin = f"Caught {type(error).__name__} in replica {index} on device {device.index}."
    return make_error(type(error), f"{origin}\nOriginal {trace}")


class UnquotedText(str):
    """A str whose ``repr`` has no quotes. A KeyError prints the ``repr`` of its text."""

    __slots__ = ()
    __repr__ = str.__str__


def make_error(error_class: Any, text: str) -> BaseException:
    """Return a new exception with ``text``. If the constructor raises, return a RuntimeError.

    A class with a truthy attribute ``message`` gets the text as keyword argument ``message``.
    """
    if issubclass(error_class, KeyError):
        text = UnquotedText(text)
    has_message = getattr(error_class, "message", None)
    try:
        error: BaseException = error_class(message=text) if has_message else error_class(text)
    except Exception:
        return RuntimeError(text)
    return error
