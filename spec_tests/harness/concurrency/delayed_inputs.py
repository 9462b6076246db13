"""Inputs whose values arrive late, while streams other than the default ones are current.

Accelerators queue work and return. A stream that does not wait for the producer of a tensor mostly
reads the right values nevertheless, because the producer is fast. A sleeping kernel makes the
producer slow:

1. The values of the inputs are saved, and their memory is cleared.
2. A kernel that sleeps is queued on the current stream of each device.
3. Copies of the saved values are queued behind it.
4. The call is made before the copies have started.

On the simulator nothing is late: operators have finished when they return.
"""

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from spec_tests.harness.environment.topology import Topology
from spec_tests.harness.traverse import tensors

#: The number of cycles of the kernel that measures the length of a cycle.
_CYCLES = 10_000_000
_milliseconds = 0.0


def set_delay(milliseconds: float) -> None:
    """Delay the inputs of every later call; 0 switches the delay off."""
    global _milliseconds
    _milliseconds = milliseconds


@contextmanager
def delayed(inputs: Mapping[str, Any], topology: Topology) -> Iterator[None]:
    """Delay the ``inputs`` on devices inside the block by the time that `set_delay` has set."""
    if not _milliseconds:
        yield
        return
    with _on_new_streams(topology):
        _delay(inputs, topology)
        yield


def queue_sleep(device: torch.device, milliseconds: float) -> None:
    """Queue a kernel that sleeps on the current stream of ``device``; do not wait for it."""
    sleep = getattr(torch.get_device_module(device), "_sleep", None)
    if sleep is not None:
        with torch.accelerator.device_index(device.index):
            sleep(int(milliseconds * _cycles_per_millisecond()))


def _delay(inputs: Mapping[str, Any], topology: Topology) -> None:
    memory = list(_memory(inputs))
    saved = [each.clone() for each in memory]
    for each in memory:
        each.zero_()
    topology.synchronize()
    for device in dict.fromkeys(topology.devices):
        queue_sleep(device, _milliseconds)
    for each, values in zip(memory, saved, strict=True):
        each.copy_(values)


def _memory(inputs: Mapping[str, Any]) -> Iterator[Tensor]:
    """Yield the storage of each dense input on a device; writes to it bump no version counter."""
    found = [tensor for name, value in inputs.items() for _, tensor in tensors(value, name)]
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage()
        for tensor in found
        if tensor.device.type != "cpu" and tensor.layout is torch.strided and tensor.numel()
    }
    for storage in storages.values():
        yield torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


@contextmanager
def _on_new_streams(topology: Topology) -> Iterator[None]:
    devices = list(dict.fromkeys(topology.devices))
    before = [torch.accelerator.current_stream(device) for device in devices]
    topology.synchronize()
    try:
        _make_current([torch.Stream(device) for device in devices])
        yield
    finally:
        topology.synchronize()
        _make_current(before)


def _make_current(streams: list[torch.Stream]) -> None:
    index = torch.accelerator.current_device_index()
    for stream in streams:
        torch.accelerator.set_stream(stream)
    torch.accelerator.set_device_index(index)


@functools.cache
def _cycles_per_millisecond() -> float:
    cuda: Any = torch.cuda
    start, stop = (cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    cuda._sleep(_CYCLES)
    stop.record()
    stop.synchronize()
    return _CYCLES / float(start.elapsed_time(stop))
