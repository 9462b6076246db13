"""impl._devices: the number of devices, and ordinals."""

from enum import IntEnum

import numpy as np
import pytest
import torch

from impl import _devices
from impl._placement import choose_devices


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
