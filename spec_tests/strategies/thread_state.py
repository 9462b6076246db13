"""The state of a calling thread: modes, autocast, devices, streams and a context variable.

Functions read or change the state of the thread that runs them.
"""

import contextvars
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

import torch
from hypothesis import strategies as st

from spec_tests.machine.capabilities import offers
from spec_tests.machine.devices import Topology

#: The context variable that `ThreadState` sets.
CONTEXT_VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("WORD", default="unset")
#: The value of `ThreadState.default_slot` for a default device without an index.
CURRENT_DEVICE = -1


@dataclass(frozen=True)
class Autocast:
    """The arguments of ``torch.autocast``."""

    dtype: torch.dtype = torch.bfloat16
    enabled: bool = True
    cache: bool = True

    def context(self, device_type: str) -> torch.autocast:
        """Return the context manager for devices of ``device_type``."""
        return torch.autocast(
            device_type, dtype=self.dtype, enabled=self.enabled, cache_enabled=self.cache
        )


@dataclass(frozen=True)
class ThreadState:
    """The state of a calling thread. The defaults are the state of a new thread.

    Args:
        grad: Whether grad mode is enabled.
        inference: Whether inference mode is enabled.
        autocast: The settings of autocast on the accelerator.
        cpu_autocast: The settings of autocast on the CPU.
        default_slot: The device of ``with torch.device(...)``: its number in the topology, or
            `CURRENT_DEVICE`; None for no default device.
        context_value: The value of `CONTEXT_VARIABLE`.
        current_slot: The number of the current device in the topology.
        stream_slots: The numbers of the devices on which a new stream is current.
    """

    grad: bool = True
    inference: bool = False
    autocast: Autocast | None = None
    cpu_autocast: Autocast | None = None
    default_slot: int | None = None
    context_value: str | None = None
    current_slot: int = 0
    stream_slots: tuple[int, ...] = ()

    @contextmanager
    def entered(self, topology: Topology) -> Iterator[None]:
        """Return a context manager that sets this state inside its block."""
        with ExitStack() as stack:
            for context in self._contexts(topology):
                stack.enter_context(context)
            token = (
                None if self.context_value is None else CONTEXT_VARIABLE.set(self.context_value)
            )
            try:
                yield
            finally:
                if token is not None:
                    CONTEXT_VARIABLE.reset(token)

    def _contexts(self, topology: Topology) -> Iterator[Any]:
        # Streams come first: entering a stream also makes its device current.
        yield from (torch.Stream(topology.device(slot)) for slot in self.stream_slots)
        yield torch.accelerator.device_index(topology.device(self.current_slot).index)
        yield torch.set_grad_enabled(self.grad)
        if self.inference:
            yield torch.inference_mode()
        if self.autocast is not None:
            yield self.autocast.context(topology.accelerator)
        if self.cpu_autocast is not None:
            yield self.cpu_autocast.context("cpu")
        if self.default_slot is not None:
            yield _default_device(topology, self.default_slot)

    def only(self, names: Collection[str]) -> "ThreadState":
        """Return a state with the fields ``names``. The others are those of a new thread."""
        return ThreadState(**{name: getattr(self, name) for name in names})

    def __repr__(self) -> str:
        changed = (
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != field.default
        )
        return f"ThreadState({', '.join(changed)})"


def _default_device(topology: Topology, slot: int) -> torch.device:
    return torch.device(topology.accelerator) if slot == CURRENT_DEVICE else topology.device(slot)


def visible_state(device: torch.device) -> dict[str, object]:
    """Return the state of the calling thread that affects work on ``device``."""
    device_type = device.type
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": (
            torch.is_autocast_enabled(device_type),
            torch.get_autocast_dtype(device_type),
        ),
        "CPU autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "autocast cache": torch.is_autocast_cache_enabled(),
        "default device": torch.empty(0).device,
        "context variable": CONTEXT_VARIABLE.get(),
        "current device": torch.accelerator.current_device_index(),
        "current stream": torch.accelerator.current_stream(device).stream_id,
    }


def visible_states(devices: Sequence[torch.device]) -> list[dict[str, object]]:
    """Return for each device the `visible_state` while this device is current."""
    states = []
    for device in devices:
        with torch.accelerator.device_index(device.index):
            states.append(visible_state(device))
    return states


def _enable_autocast(device: torch.device) -> None:
    torch.set_autocast_enabled(device.type, True)
    torch.set_autocast_dtype(device.type, torch.bfloat16)


def _change_stream(device: torch.device) -> None:
    if offers("new-streams"):
        torch.accelerator.set_stream(torch.Stream(device))


def _enable_cpu_autocast(_: torch.device) -> None:
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_dtype("cpu", torch.float16)


#: For each change of the thread's state: the function that makes it, given a device.
CHANGES: Mapping[str, Callable[[torch.device], Any]] = MappingProxyType(
    {
        "grad mode": lambda _: torch.set_grad_enabled(not torch.is_grad_enabled()),
        "autocast": _enable_autocast,
        "CPU autocast": _enable_cpu_autocast,
        "autocast cache": lambda _: torch.set_autocast_cache_enabled(False),
        "default device": torch.set_default_device,
        "context variable": lambda _: CONTEXT_VARIABLE.set("changed"),
        "current device": lambda device: torch.accelerator.set_device_index(device.index),
        "current stream": _change_stream,
    }
)


#: A strategy for settings of autocast, or None.
AUTOCASTS = st.none() | st.builds(
    Autocast,
    dtype=st.sampled_from([torch.bfloat16, torch.float16]),
    enabled=st.sampled_from([True, False]),
    cache=st.booleans(),
)


def thread_states() -> st.SearchStrategy[ThreadState]:
    """Draw states with any combination of settings. Shrinks to the default state."""
    return st.builds(
        ThreadState,
        grad=st.sampled_from([True, False]),
        inference=st.booleans(),
        autocast=AUTOCASTS,
        cpu_autocast=AUTOCASTS,
        default_slot=st.none() | st.integers(CURRENT_DEVICE, 3),
        context_value=st.none() | st.just("set"),
        current_slot=st.integers(0, 3),
        stream_slots=st.lists(st.integers(0, 3), max_size=3, unique=True).map(tuple),
    )
