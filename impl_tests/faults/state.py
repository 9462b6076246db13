"""The state that a call must not change, and its comparison before and after the call."""

import contextvars
import gc
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

__all__ = ["LocalState", "find_changes", "read_module", "read_state"]

#: Seconds after a call in which its threads must end and its memory must be freed.
_PATIENCE = 10
#: The beginning of the names of threads that a target may keep for later calls.
_KEPT_THREADS = "parallel_apply"
#: The context variable and the ``threading.local`` that :class:`LocalState` sets.
_VALUE = contextvars.ContextVar[str]("value of the caller")
_LOCAL = threading.local()


class LocalState:
    """The calling thread's values of a context variable and of a ``threading.local``."""

    @staticmethod
    def set(value: str) -> None:
        """Set both values in the calling thread."""
        _VALUE.set(value)
        _LOCAL.value = value

    @staticmethod
    def read() -> tuple[str | None, str | None]:
        """Return both values of the calling thread."""
        return _VALUE.get(None), getattr(_LOCAL, "value", None)


def read_state() -> dict[str, Any]:
    """Return the state of the calling thread and process that a call must not change."""
    accelerator = torch.accelerator
    types = ("cpu", "sim")
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": [*map(torch.is_autocast_enabled, types)],
        "dtypes of autocast": [*map(torch.get_autocast_dtype, types)],
        "cache of autocast": torch.is_autocast_cache_enabled(),
        "current device": accelerator.current_device_index(),
        "current streams": [
            accelerator.current_stream(index).stream_id
            for index in range(accelerator.device_count())
        ],
        "garbage collector": gc.isenabled(),
        "context variable and thread-local value": LocalState.read(),
        "default device": torch.get_default_device(),
        "operator threads": torch.get_num_threads(),
        "trace functions": (sys.gettrace(), sys.getprofile()),
        "handled exception": sys.exception(),
        "recursion limit": sys.getrecursionlimit(),
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "tracking of views": torch._C._is_view_replay_enabled(),
    }


def read_module(net: nn.Module | None) -> dict[str, Any]:
    """Return the state of a module and its submodules that a call must not change."""
    modules = [] if net is None else [*net.modules()]
    return {
        f"{type(module).__name__} {index}": (
            module.training,
            {name: id(value) for name, value in vars(module).items() if name != "trigger"},
            [(name, id(tensor), tensor._version) for name, tensor in module.named_parameters()],
            [len(value) for name, value in vars(module).items() if name.endswith("_hooks")],
        )
        for index, module in enumerate(modules)
    }


def read_memory() -> list[int]:
    """Return the number of allocated bytes on each device, without the cache of autocast."""
    torch.clear_autocast_cache()
    return [*map(torch.accelerator.memory_allocated, range(torch.accelerator.device_count()))]


def find_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield a text for each value that differs."""
    for name, value in before.items():
        if after.get(name) != value:
            yield f"{name}: {value!r} before, {after.get(name)!r} after"


class Resources:
    """The threads of the process and the memory of the devices at one time.

    Args:
        kept_threads: How many threads named ``parallel_apply`` a target may keep.
    """

    def __init__(self, kept_threads: int) -> None:
        self._kept_threads = kept_threads
        self._threads = frozenset(threading.enumerate())
        self._memory = read_memory()

    def find_growth(self) -> list[str]:
        """Wait some seconds at most. Return a text for each resource that is not freed by then."""
        end = time.monotonic() + _PATIENCE
        while True:
            growth = [*self._find_growth()]
            if not growth or time.monotonic() > end:
                return growth
            gc.collect()
            time.sleep(0.01)

    def _find_growth(self) -> Iterator[str]:
        new = [thread for thread in threading.enumerate() if thread not in self._threads]
        others = [thread.name for thread in new if not thread.name.startswith(_KEPT_THREADS)]
        if others:
            yield f"threads still run: {others}"
        if len(new) - len(others) > self._kept_threads:
            yield f"{len(new) - len(others)} threads were kept"
        memory = read_memory()
        if any(now > before for now, before in zip(memory, self._memory, strict=True)):
            yield f"bytes allocated on the devices: {self._memory} before, {memory} after"
