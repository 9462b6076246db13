"""The state that a call must not change, and the resources that it must free."""

import contextvars
import gc
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spec_tests.machine import process_state
from spec_tests.machine.devices import SIMULATED_DEVICES, Topology

__all__ = ["StateBefore", "set_values"]

_TOPOLOGY = Topology("sim", tuple(range(SIMULATED_DEVICES)))
#: Seconds after a call in which its threads must end and its memory must be freed.
_PATIENCE = 10
#: The beginning of the names of threads that a target may keep for later calls.
_KEPT_THREADS = "parallel_apply"
#: The values of the calling thread that a call must not change.
_VALUE = contextvars.ContextVar[str]("value of the caller")
_LOCAL = threading.local()


def set_values() -> None:
    """Set a context variable and a thread-local value, which are a part of the state."""
    _VALUE.set("set by the caller")
    _LOCAL.value = _VALUE.get()


class StateBefore:
    """The state of the thread, the process and modules at one time, and their resources.

    Args:
        modules: The modules.
        kept_threads: How many threads named ``parallel_apply`` a target may keep.
    """

    def __init__(self, modules: Sequence[nn.Module], kept_threads: int) -> None:
        self._modules, self._kept_threads = modules, kept_threads
        self._values = _read_values(modules)
        self._threads = frozenset(threading.enumerate())
        self._memory = _read_memory()

    def find_changes(self) -> list[str]:
        """Return the changed values, and the resources that are not freed after some seconds."""
        end = time.monotonic() + _PATIENCE
        while (growth := [*self._find_growth()]) and time.monotonic() < end:
            gc.collect()
            time.sleep(0.01)
        return [*process_state.changes(self._values, _read_values(self._modules)), *growth]

    def _find_growth(self) -> Iterator[str]:
        new = [thread for thread in threading.enumerate() if thread not in self._threads]
        others = [thread.name for thread in new if not thread.name.startswith(_KEPT_THREADS)]
        if others:
            yield f"threads still run: {others}"
        if len(new) - len(others) > self._kept_threads:
            yield f"{len(new) - len(others)} threads were kept"
        memory = _read_memory()
        if any(now > before for now, before in zip(memory, self._memory, strict=True)):
            yield f"bytes allocated on the devices: {self._memory} before, {memory} after"


def _read_values(modules: Sequence[nn.Module]) -> dict[str, Any]:
    return {
        **process_state.read(_TOPOLOGY),
        "context variable": _VALUE.get(None),
        "thread-local value": getattr(_LOCAL, "value", None),
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "tracking of views": torch._C._is_view_replay_enabled(),
        **{f"{type(each).__name__} {i}": _read_module(each) for i, each in enumerate(modules)},
    }


def _read_module(module: nn.Module) -> tuple[Any, ...]:
    return (
        module.training,
        {name: id(value) for name, value in vars(module).items()},
        [(name, id(tensor), _version(tensor)) for name, tensor in module.named_parameters()],
        [len(value) for name, value in vars(module).items() if name.endswith("_hooks")],
    )


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _read_memory() -> list[int]:
    """Return the number of allocated bytes on each device, without the cache of autocast."""
    torch.clear_autocast_cache()
    return [*map(torch.accelerator.memory_allocated, range(torch.accelerator.device_count()))]
