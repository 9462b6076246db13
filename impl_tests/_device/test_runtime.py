"""impl._device: the functions that read and set devices and streams."""

import torch

from impl._device import stream
from impl._device.device import runtime, type_to_use


def test_without_a_type_the_runtime_is_that_of_the_accelerator():
    assert runtime(None) is torch.accelerator


def test_the_type_of_a_device_string_is_used(topology):
    device = topology.devices[0]
    assert type_to_use(str(device)) == device.type


def test_a_device_without_streams_has_no_side_stream(monkeypatch):
    monkeypatch.setattr(stream, "_has_side_streams", lambda device: True)
    assert stream.side_stream(torch.device("mps")) is None
