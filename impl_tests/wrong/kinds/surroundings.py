"""Kinds that change the state in which a call runs, or its order on the devices."""

import contextvars
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import Tensor

from impl_tests.wrong.calls import Call, map_tensors
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()


def has_accelerator() -> bool:
    return torch.accelerator.current_accelerator(check_available=True) is not None


def _under(name: str, context: Callable[[], AbstractContextManager[Any]]) -> None:
    """Register a kind that makes the call in a context."""

    def run(call: Call) -> Any:
        with context():
            return call.run()

    KINDS[f"under-{name}"] = run


_under("no-grad", torch.no_grad)
_under("grad", torch.enable_grad)
_under("inference", torch.inference_mode)
_under("autocast", lambda: torch.autocast("cpu", torch.bfloat16))
_under("device-autocast", lambda: torch.autocast("sim", torch.bfloat16))
_under("no-autocast", lambda: each_autocast(enabled=False))
_under("other-device", lambda: torch.accelerator.device_index(other_device()))
_under("other-stream", lambda: torch.Stream(f"sim:{torch.accelerator.current_device_index()}"))
_under("default-streams", lambda: default_streams())
_under("default-device", lambda: torch.device("sim:0"))


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
def in_another_context(call: Call) -> Any:
    """Make the call with an empty context."""
    return contextvars.Context().run(call.run)


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
