"""Kinds that change the state in which a call runs, or its order on the devices."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from impl_tests.wrong.calls import Call, map_tensors
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()


def has_accelerator() -> bool:
    return torch.accelerator.current_accelerator(check_available=True) is not None


@KINDS.around
def under_grad(call: Call) -> Any:
    """Make the call with grad mode on."""
    with torch.enable_grad():
        return call.run()


@KINDS.around
def under_default_streams(call: Call) -> Any:
    """Make the call with the default streams current."""
    with default_streams():
        return call.run()


def each_autocast(*, enabled: bool) -> ExitStack:
    stack = ExitStack()
    for kind in ("cpu", "sim"):
        stack.enter_context(torch.autocast(kind, enabled=enabled))
    return stack


def other_device() -> int:
    return torch.accelerator.current_device_index() ^ 1


def default_streams() -> ExitStack:
    stack = ExitStack()
    for index in range(torch.accelerator.device_count()):
        device = torch.device("sim", index)
        stream = torch.accelerator.current_stream(device)
        default = torch.Stream(stream_id=0, device_index=index, device_type=stream.device_type)
        stack.enter_context(default)
    return stack


@KINDS.around
def in_another_thread(call: Call) -> Any:
    """Make the call in a new thread."""
    return in_thread(call.run)


def in_thread(function: Callable[[], Any]) -> Any:
    found: list[Any] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(function())
        except BaseException as error:  # raised in the caller
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]


@KINDS.around
def late(call: Call) -> Any:
    """Copy the results on streams that no other stream waits for."""
    return map_tensors(_copy_late, call.run())


def _copy_late(tensor: Tensor) -> Tensor:
    if tensor.device.type == "cpu":
        return tensor
    with torch.Stream(tensor.device):
        return tensor.clone()


@KINDS.around
def late_arguments(call: Call) -> Any:
    """Read the arguments on streams that wait for no other stream."""
    return call.mapped(_copy_late).run()


@KINDS.around
def synchronized(call: Call) -> Any:
    """Wait for all devices after the call."""
    result = call.run()
    if has_accelerator():
        for index in range(torch.accelerator.device_count()):
            torch.accelerator.synchronize(index)
    return result
