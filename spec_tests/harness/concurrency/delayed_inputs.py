"""Inputs whose values arrive late, while streams other than the default ones are current.

Accelerators queue work and return. Whoever reads a tensor on a stream that does not wait for its
producer mostly reads the right values all the same, as the producer is quick. Here it is slow: a
kernel that does nothing comes before it.

1. The memory of the inputs is cleared, and what was in it kept.
2. The current stream of each device is held for a while.
3. Behind that, on the same stream, the memory gets its values back.
4. The call is made: at once, from the host's point of view.

On the simulator operators have ended when they return, and nothing is late.
"""

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from spec_tests.harness.environment.topology import Topology
from spec_tests.harness.traverse import tensors

#: How many cycles the length of one is measured with.
_CYCLES = 10_000_000
_milliseconds = 0.0


def set_delay(milliseconds: float) -> None:
    """Let the inputs of every later call be late by so much; 0 for not at all."""
    global _milliseconds
    _milliseconds = milliseconds


@contextmanager
def arrival(inputs: Mapping[str, Any], topology: Topology) -> Iterator[None]:
    """Inside the block the ``inputs`` on devices are late, if `set_delay` said so."""
    if not _milliseconds:
        yield
        return
    with _streams_of_our_own(topology):
        _delay(inputs, topology)
        yield


def hold(device: torch.device, milliseconds: float) -> None:
    """Let the current stream of ``device`` do nothing for a while, and return at once."""
    sleep = getattr(torch.get_device_module(device), "_sleep", None)
    if sleep is not None:
        with torch.accelerator.device_index(device.index):
            sleep(int(milliseconds * _cycles_per_millisecond()))


def _delay(inputs: Mapping[str, Any], topology: Topology) -> None:
    memory = list(_memory(inputs))
    kept = [each.clone() for each in memory]
    for each in memory:
        each.zero_()
    topology.synchronize()
    for device in dict.fromkeys(topology.devices):
        hold(device, _milliseconds)
    for each, values in zip(memory, kept, strict=True):
        each.copy_(values)


def _memory(inputs: Mapping[str, Any]) -> Iterator[Tensor]:
    """The bytes of all dense inputs on devices, each once; no input notices a write to them."""
    found = [tensor for name, value in inputs.items() for _, tensor in tensors(value, name)]
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage()
        for tensor in found
        if tensor.device.type != "cpu" and tensor.layout is torch.strided and tensor.numel()
    }
    for storage in storages.values():
        yield torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


@contextmanager
def _streams_of_our_own(topology: Topology) -> Iterator[None]:
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
