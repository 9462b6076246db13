"""The state of process and thread that a call must leave as it was.

A free-threaded Python enables the global interpreter lock (GIL) for the whole process, and only
warns, if it imports an extension that does not declare support for free threading.
"""

import gc
import os
import platform
import sys
import sysconfig
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

# torch imports this module, and sympy with it, in the first call that computes a memory format.
# sympy adds a warning filter, which would look like a change by that call.
import torch.fx.experimental.symbolic_shapes

from spec_tests.machine.devices import Topology


def read(topology: Topology) -> dict[str, Any]:
    """Return the settings that a call must leave unchanged, by name."""
    state: dict[str, Any] = {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "number of threads": torch.get_num_threads(),
        "autocast's cache": torch.is_autocast_cache_enabled(),
        "GIL": is_gil_enabled(),
        "warning filters": list(warnings.filters),
        "garbage collector": (gc.isenabled(), gc.get_threshold()),
        "current folder": os.getcwd(),
        "recursion limit": sys.getrecursionlimit(),
        "hooks of sys": (sys.excepthook, sys.unraisablehook, sys.gettrace(), sys.getprofile()),
        "hooks of threading": (threading.excepthook, threading.gettrace(), threading.getprofile()),
    }
    for kind in {"cpu", topology.accelerator}:
        if torch.amp.is_autocast_available(kind):
            enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
            state[f"autocast of {kind}"] = enabled, dtype
    if torch.accelerator.is_available():
        state["current device"] = torch.accelerator.current_device_index()
        streams = _current_streams(topology)
        state |= {f"current stream ({stream.device})": stream for stream in streams}
    return state


@contextmanager
def kept_devices(topology: Topology) -> Iterator[None]:
    """Restore the current device and the current streams of this thread at the end."""
    if not torch.accelerator.is_available():
        yield
        return
    device, streams = torch.accelerator.current_device_index(), _current_streams(topology)
    try:
        yield
    finally:
        for now, before in zip(_current_streams(topology), streams, strict=True):
            if now != before:
                torch.accelerator.set_stream(before)  # It changes the current device.
        if torch.accelerator.current_device_index() != device:
            torch.accelerator.set_device_index(device)


def _current_streams(topology: Topology) -> list[torch.Stream]:
    return [torch.accelerator.current_stream(device) for device in topology.devices]


def read_random_states(topology: Topology) -> dict[str, Any]:
    """Return the states of the generators of the CPU and of all devices, by name."""
    states = {"random state of the CPU": torch.get_rng_state().numpy().tobytes()}
    module = torch.get_device_module(topology.accelerator)
    if hasattr(module, "get_rng_state"):
        for device in set(topology.devices):
            states[f"random state of {device}"] = module.get_rng_state(device).numpy().tobytes()
    return states


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """Return the sorted names of the values that differ. Each has a text with short values."""
    changed = {
        name: (value, after[name]) for name, value in before.items() if after[name] != value
    }
    return {name: _describe(name, *changed[name]) for name in sorted(changed)}


def _describe(name: str, before: Any, after: Any) -> str:
    """Return ``current device: 1, before 0``; only the name if the values are no simple ones."""
    is_simple = isinstance(after, bool | int | str | torch.dtype | torch.device)
    return f"{name}: {after}, before {before}" if is_simple else name


def is_free_threaded() -> bool:
    """Return whether this Python can run without the GIL."""
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def is_gil_enabled() -> bool:
    """Return whether the GIL is enabled now."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def python_version() -> str:
    """Return the version, and for a free-threaded Python the state of the GIL."""
    if not is_free_threaded():
        return platform.python_version()
    return f"{platform.python_version()} free-threaded, GIL {'on' if is_gil_enabled() else 'off'}"
