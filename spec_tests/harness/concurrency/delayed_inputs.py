"""Makes new streams current during a call, and delays the writes of the call's inputs.

An operator on an accelerator returns before its kernel has run. A stream that does not wait for
the kernel that writes a tensor mostly reads the right values nevertheless, because the kernel is
fast. Here a long kernel delays the write:

1. The values of the inputs are saved, and their memory is cleared.
2. A long product of matrices is queued on the current stream of each device.
3. Copies of the saved values to the inputs are queued behind this product.
4. The test makes the call before the copies have started.

The simulator has no delay: an operator has finished when it returns.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from spec_tests.harness.environment.queued_work import queue_work
from spec_tests.harness.environment.topology import Topology
from spec_tests.harness.traverse import storage_id, tensors

_milliseconds = 0.0


def set_delay(milliseconds: float) -> None:
    """Set the delay for all later blocks of `delayed`; 0 switches the delay off."""
    global _milliseconds
    _milliseconds = milliseconds


@contextmanager
def delayed(inputs: Mapping[str, Any], topology: Topology) -> Iterator[None]:
    """Make new streams current in the block, and delay the inputs as set by `set_delay`.

    If the delay is 0, do nothing. Inputs on the CPU are not delayed.
    """
    if not _milliseconds:
        yield
        return
    with _use_new_streams(topology):
        _delay_inputs(inputs, topology)
        yield


def _delay_inputs(inputs: Mapping[str, Any], topology: Topology) -> None:
    storages = list(_storages(inputs))
    saved = [storage.clone() for storage in storages]
    for storage in storages:
        storage.zero_()
    topology.synchronize()
    for device in dict.fromkeys(topology.devices):
        queue_work(device, _milliseconds)
    for storage, values in zip(storages, saved, strict=True):
        storage.copy_(values)


def _storages(inputs: Mapping[str, Any]) -> Iterator[Tensor]:
    """Yield the storage of each dense input on a device, as a tensor of bytes.

    Writes to these tensors do not change the version counters of the inputs.
    """
    found = [tensor for name, value in inputs.items() for _, tensor in tensors(value, name)]
    storages = {
        key: tensor.untyped_storage()
        for tensor in found
        if tensor.device.type != "cpu" and tensor.numel() and (key := storage_id(tensor))
    }
    for storage in storages.values():
        yield torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


@contextmanager
def _use_new_streams(topology: Topology) -> Iterator[None]:
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
