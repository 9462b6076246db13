"""impl._devices: device types and ordinals, and a second accelerator.

With two accelerators in one process torch.accelerator reports one, and a module is on the other.
"""

from enum import IntEnum

import numpy as np
import pytest
import torch
from torch import nn

import impl
from impl import _devices
from impl._placement import choose_devices
from spec_tests.checks.training_step import train_step


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


class _Refusing:
    """A stand-in for torch.accelerator. Only functions that a test adds to it may be called."""

    def __getattr__(self, name):
        raise AssertionError(f"torch.accelerator.{name} was called")


class _Torch:
    """The package torch with its true ``accelerator``, for the simulator's device module."""

    accelerator = torch.accelerator

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.fixture
def second(topology, monkeypatch):
    """Make torch.accelerator report an XPU accelerator beside the simulator."""
    if topology.accelerator != "sim":
        pytest.skip("not-run: the second accelerator of this test is the simulator")
    reported = _Refusing()
    reported.current_accelerator = lambda check_available=False: torch.device("xpu")
    monkeypatch.setattr(torch.get_device_module("sim"), "torch", _Torch())
    monkeypatch.setattr(torch, "accelerator", reported)
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    _clear_caches()
    yield topology
    _clear_caches()


def _clear_caches():
    _devices._is_usable.cache_clear()
    _devices._second_runtime.cache_clear()


def test_default_devices_are_of_the_type_of_the_parameters(second):
    module = nn.Linear(2, 2).to(second.device(0))
    parallel = impl.DataParallel(module)
    assert parallel.device_ids == [*second.devices]
    assert parallel.output_device == parallel.src_device_obj == second.device(0)


def test_explicit_devices_precede_those_of_the_parameters(second):
    torch.accelerator.device_count = lambda: 2
    module = nn.Linear(2, 2)
    assert impl.DataParallel(module, device_ids=[1, 0]).src_device_obj == torch.device("xpu", 1)
    device = second.device(0)
    assert impl.DataParallel(module, device_ids=[device, device]).src_device_obj == device


def test_default_devices_of_a_module_on_the_cpu_are_those_of_the_accelerator(second, monkeypatch):
    torch.accelerator.device_count = lambda: 2
    parallel = impl.DataParallel(nn.Linear(2, 2))
    assert (parallel.device_ids, parallel.src_device_obj) == ([0, 1], torch.device("xpu", 0))


@pytest.mark.parametrize("in_turn", [False, True])
def test_module_on_the_second_accelerator_trains_as_on_one_device(second, in_turn):
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0), nn.Linear(4, 2)).double()
    inputs = torch.randn(6, 3, dtype=torch.double)
    expected = train_step(module, inputs)
    parallel = impl.DataParallel(module.to(second.device(0)), in_turn=in_turn)
    torch.testing.assert_close(train_step(module, inputs, parallel), expected)
    assert parallel(inputs).device == second.device(0)


def test_replicas_on_the_second_accelerator_inherit_the_current_streams(second):
    module = torch.get_device_module(second.accelerator)
    current, before = module.current_device(), [*map(module.current_stream, second.devices)]
    streams = [torch.Stream(device) for device in second.devices]
    try:
        for stream in streams:
            module.set_stream(stream)
        found = impl.parallel_apply(
            [lambda device: module.current_stream(device)] * len(streams),
            [(device,) for device in second.devices],
            devices=list(second.devices),
        )
        assert found == streams
    finally:
        for stream in before:
            module.set_stream(stream)  # This also changes the current device.
        module.set_device(current)


def test_a_device_may_be_named_by_its_text(second):
    module, device = torch.get_device_module(second.accelerator), second.devices[1]
    found = impl.parallel_apply([module.current_device] * 2, [(), ()], devices=[str(device)] * 2)
    assert found == [device.index] * 2
