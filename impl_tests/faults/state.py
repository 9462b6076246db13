"""The context of a call, and the state that the call must not change."""

import contextvars
import gc
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from spec_tests.harness.compare import surroundings
from spec_tests.harness.concurrency.leaks import disable_gc
from spec_tests.harness.environment.topology import SIMULATED_DEVICES, Topology

__all__ = ["Resources", "call_in_context", "draw_context", "read_state"]

T = TypeVar("T")
_TOPOLOGY = Topology("sim", tuple(range(SIMULATED_DEVICES)))
#: Seconds after a call in which its threads must end and its memory must be freed.
_PATIENCE = 10
#: The beginning of the names of threads that a target may keep for later calls.
_KEPT_THREADS = "parallel_apply"
#: The values of the calling thread that a call must not change.
_VALUE = contextvars.ContextVar[str]("value of the caller")
_LOCAL = threading.local()
#: A context that is no context manager: the call is made in an ``except`` clause.
_HANDLER = "except clause"
#: Name of a context -> a function that returns a context manager.
_CONTEXTS: dict[str, Callable[[], Any]] = {
    "": nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("sim", dtype=torch.float16),
    "device 1": lambda: torch.accelerator.device_index(1),
    "stream of device 2": lambda: torch.Stream(device="sim:2"),
    "collector off": disable_gc,
    "default device": lambda: torch.device("cpu"),
    _HANDLER: nullcontext,
}


def draw_context(rng: random.Random) -> str:
    """Return the name of a context; for half of the draws an empty one, for no context."""
    return rng.choice([*_CONTEXTS, *[""] * (len(_CONTEXTS) - 2)])


def call_in_context(name: str, function: Callable[[], T]) -> T:
    """Return ``function()``, called in the named context."""
    _VALUE.set(f"set by {name}")
    _LOCAL.value = _VALUE.get()
    contexts = ExitStack()
    try:
        contexts.enter_context(_CONTEXTS[name]())
        if name != _HANDLER:
            return function()
        try:
            raise LookupError("the exception that the caller handles")
        except LookupError:
            return function()
    finally:
        # Leaving a context may raise an error if the call has changed the state. The verdict
        # reports such a change.
        with suppress(RuntimeError):
            contexts.close()


def read_state(modules: Sequence[nn.Module]) -> dict[str, Any]:
    """Return the state of the thread, the process and modules that a call must not change."""
    return {
        **surroundings.read(_TOPOLOGY),
        "context variable": _VALUE.get(None),
        "thread-local value": getattr(_LOCAL, "value", None),
        "handled exception": sys.exception(),
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


class Resources:
    """The threads of the process and the memory of the devices at one time.

    Args:
        kept_threads: How many threads named ``parallel_apply`` a target may keep.
    """

    def __init__(self, kept_threads: int) -> None:
        self._kept_threads = kept_threads
        self._threads = frozenset(threading.enumerate())
        self._memory = _read_memory()

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
        memory = _read_memory()
        if any(now > before for now, before in zip(memory, self._memory, strict=True)):
            yield f"bytes allocated on the devices: {self._memory} before, {memory} after"
