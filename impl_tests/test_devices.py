"""impl._devices: device types and ordinals; interrupts of settings."""

from enum import IntEnum

import numpy as np
import pytest
import torch

from impl import _devices, comm
from impl._devices import call_on_device
from impl._placement import choose_devices
from impl._streams import call_on_stream, call_on_streams, current_stream_by_device


def test_back_end_without_is_available_is_asked_for_its_device_count(topology, monkeypatch):
    module = torch.get_device_module(topology.accelerator)
    monkeypatch.delattr(module, "is_available")
    _devices._is_usable.cache_clear()
    for count, expected in [(1, topology.accelerator), (0, None)]:
        monkeypatch.setattr(module, "device_count", lambda count=count: count)
        _devices._is_usable.cache_clear()
        assert _devices.accelerator_type() == expected
    _devices._is_usable.cache_clear()


def test_back_end_without_device_count_is_named_in_the_error(topology, monkeypatch):
    monkeypatch.delattr(torch.get_device_module(topology.accelerator), "device_count")
    with pytest.raises(RuntimeError, match=r"cannot count its devices: .*'device_count'"):
        _devices.device_count()


@pytest.mark.parametrize("ordinal", [0, np.int64(0), IntEnum("Ordinal", {"FIRST": 0}).FIRST])
def test_integers_of_numpy_and_enums_are_ordinals(topology, ordinal):
    expected = torch.device(topology.device(0).type, 0)
    assert _devices.as_device_or_current(ordinal) == expected
    placement = choose_devices([ordinal, ordinal], ordinal)
    assert [*map(type, placement.device_ids)] == [int, int]
    assert type(placement.output_device) is int


def test_the_largest_index_of_a_device_is_127(topology):
    kind = topology.device(0).type
    assert _devices.device_at(127) == torch.device(kind, 127)
    with pytest.raises(RuntimeError, match="There is no device with the index 128"):
        _devices.device_at(128)
    with pytest.raises(RuntimeError, match="There is no device with the index 1000"):
        choose_devices([1000], None)


class InterruptedSetter:
    """A setter whose first call that sets ``value`` is interrupted, without effect."""

    def __init__(self, setter, value):
        self.setter, self.value, self.is_interrupted = setter, value, False

    def __call__(self, value):
        if value == self.value and not self.is_interrupted:
            self.is_interrupted = True
            raise KeyboardInterrupt
        self.setter(value)


def call_on_other_device(devices):
    current = torch.accelerator.current_device_index()
    call_on_device(next(device for device in devices if device.index != current), int)


def call_on_swapped_streams(devices):
    streams = current_stream_by_device(devices)
    call_on_streams({torch.Stream(device): stream for device, stream in streams.items()}, int)


def reduce(devices):
    comm.reduce_add_coalesced([[torch.ones(2, device=device)] for device in devices])


#: Call -> the function that restores a setting, and a function that reads the setting.
RESTORED = {
    call_on_other_device: (
        (torch.accelerator, "set_device_index"),
        lambda devices: torch.accelerator.current_device_index(),
    ),
    lambda devices: call_on_stream(torch.Stream(devices[0]), int): (
        (torch.accelerator, "set_stream"),
        lambda devices: torch.accelerator.current_stream(devices[0]),
    ),
    call_on_swapped_streams: (
        (torch.accelerator, "set_stream"),
        lambda devices: torch.accelerator.current_stream(devices[-1]),
    ),
    reduce: ((torch, "set_grad_enabled"), lambda devices: torch.is_grad_enabled()),
}


@pytest.mark.parametrize("call", RESTORED, ids=["device", "stream", "streams", "grad mode"])
def test_an_interrupted_call_restores_settings(topology, monkeypatch, call):
    (owner, name), read = RESTORED[call]
    devices = topology.devices
    value, streams = read(devices), current_stream_by_device(devices)
    device = torch.accelerator.current_device_index()
    setter = InterruptedSetter(getattr(owner, name), value)
    monkeypatch.setattr(owner, name, setter)
    with pytest.raises(KeyboardInterrupt):
        call(devices)
    assert setter.is_interrupted
    assert read(devices) == value
    assert current_stream_by_device(devices) == streams
    assert torch.accelerator.current_device_index() == device
