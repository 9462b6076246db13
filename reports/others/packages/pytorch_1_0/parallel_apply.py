"""parallel_apply that starts a new thread for each module and raises exceptions unchanged."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class _Calls:
    """The calls of modules in one parallel_apply, with their results and exceptions."""

    def __init__(self, calls: Sequence[tuple[nn.Module, Any, Mapping[str, Any], Any]]) -> None:
        self._calls = calls
        self._grad_mode = torch.is_grad_enabled()
        self._results: dict[int, Any] = {}
        self._errors: dict[int, Exception] = {}

    def run(self, index: int) -> None:
        """Run one call. An Exception is kept; any other BaseException ends the thread."""
        module, inputs, kwargs, device = self._calls[index]
        try:
            with (
                torch.set_grad_enabled(self._grad_mode),
                torch.accelerator.device_index(_device_index(device, inputs)),
            ):
                arguments = inputs if isinstance(inputs, list | tuple) else [inputs]
                self._results[index] = module(*arguments, **kwargs)
        except Exception as error:
            self._errors[index] = error

    def result(self, index: int) -> Any:
        """Return the result of a call, or raise its exception."""
        if index in self._errors:
            raise self._errors[index]
        return self._results[index]


def parallel_apply(
    modules: Sequence[nn.Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[Mapping[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Call each module with its inputs on its device; call a single module in this thread."""
    kwargs = [{}] * len(modules) if kwargs_tup is None else kwargs_tup
    targets = [None] * len(modules) if devices is None else devices
    assert len(modules) == len(inputs) == len(kwargs) == len(targets)
    calls = _Calls(list(zip(modules, inputs, kwargs, targets, strict=True)))
    indices = range(len(modules))
    if len(indices) == 1:
        calls.run(0)
    else:
        _run_threads([threading.Thread(target=calls.run, args=[index]) for index in indices])
    return [calls.result(index) for index in indices]


def _run_threads(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _device_index(device: Any, inputs: Any) -> Any:
    """Return the index of ``device``, or of the device of the first tensor in ``inputs``."""
    if device is None:
        return _first_tensor(inputs).get_device()
    return device.index if isinstance(device, torch.device) else device


def _first_tensor(value: Any) -> Any:
    """Return the first tensor in nested containers; None if there is none."""
    if isinstance(value, Tensor):
        return value
    items = value.values() if isinstance(value, Mapping) else value
    if isinstance(items, list | tuple) or isinstance(value, Mapping):
        tensors = (_first_tensor(item) for item in items)
        return next((tensor for tensor in tensors if tensor is not None), None)
    return None
