"""impl._devices: device types, the devices of a wrapper, side streams; interrupts of settings."""

import importlib
import inspect
import pkgutil
import sys
import warnings
from enum import IntEnum
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from impl import DataParallel, _devices, comm, data_parallel, scatter
from impl._devices import (
    as_device_or_current,
    call_on_device,
    call_on_stream,
    call_on_streams,
    choose_devices,
    current_stream_by_device,
)
from impl._settings import call_with_setting
from impl.functions import Broadcast, Scatter, _get_stream


def test_set_current_streams_does_not_set_streams_that_are_current(topology, monkeypatch):
    # On CUDA, set_stream would create a context on an unused device, and a context takes memory.
    streams = [*map(_devices.current_stream, dict.fromkeys(topology.devices))]
    monkeypatch.setattr(torch.accelerator, "set_stream", None)
    _devices.set_current_streams(streams)


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


def _fail(*_):
    raise RuntimeError("Backend doesn't support create a new Stream.")


class StreamWithoutWaits(torch.Stream):
    """A stream whose ``wait_stream`` raises."""

    wait_stream = _fail


def test_back_end_whose_streams_cannot_wait_has_no_side_streams(topology, monkeypatch):
    monkeypatch.setattr(torch, "Stream", StreamWithoutWaits)
    assert not _devices._has_side_streams.__wrapped__(topology.device(0))


@pytest.mark.parametrize("name", ["Stream", "Tensor.record_stream"])
def test_chunks_are_copied_on_the_current_stream_if_side_streams_cannot_be_used(
    topology, monkeypatch, name
):
    owner, _, attribute = f"torch.{name}".rpartition(".")
    monkeypatch.setattr(pkgutil.resolve_name(owner), attribute, _fail)
    monkeypatch.setattr(_devices, "_side_streams", {})
    _devices._has_side_streams.cache_clear()
    chunks = Scatter.apply(topology.take(2), None, 0, torch.arange(4.0))
    assert [chunk.tolist() for chunk in chunks] == [[0, 1], [2, 3]]
    assert _devices.side_stream(topology.device(0)) is None
    _devices._has_side_streams.cache_clear()


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


#: Calls that ask for the stream of a missing device. ``x`` is on the CPU, ``y`` on the device.
STREAM_CALLS = {
    "scatter": lambda x, y, devices, missing: scatter(x, [devices[0], missing]),
    "Scatter": lambda x, y, devices, missing: Scatter.apply([devices[0], missing], None, 0, x),
    "Broadcast": lambda x, y, devices, missing: Broadcast.apply([devices[0], missing], y),
    "DataParallel": lambda x, y, devices, missing: DataParallel(
        torch.nn.Identity(), [devices[0], missing]
    )(x),
    "_get_stream": lambda x, y, devices, missing: _get_stream(missing),
}


@pytest.mark.parametrize("call", STREAM_CALLS.values(), ids=STREAM_CALLS)
def test_stream_of_a_missing_device_is_not_asked_for(topology, monkeypatch, call):
    # A back end may end the process instead of raising an error.
    count = torch.accelerator.device_count()
    missing = torch.device(topology.accelerator, count)
    asked = []
    current_stream = torch.accelerator.current_stream
    monkeypatch.setattr(
        torch.accelerator,
        "current_stream",
        lambda *device: asked.extend(device) or current_stream(*device),
    )
    x = torch.ones(4)
    text = f"There is no device {missing}: the number of {topology.accelerator} devices is {count}"
    with pytest.raises(RuntimeError, match=text):
        call(x, x.to(topology.device(0)), topology.take(1), missing)
    assert count not in asked


@pytest.mark.parametrize("base", [torch.Stream, object], ids=["subclass", "other class"])
def test_scatter_accepts_streams_of_a_class_that_the_back_end_replaced(
    topology, monkeypatch, base
):
    device = topology.device(0)
    current = torch.accelerator.current_stream(device.index)
    monkeypatch.setattr(torch, "Stream", type("Stream", (base,), {}))
    (chunk,) = comm.scatter(torch.ones(2), [device], streams=[current])
    assert chunk.device == device
    with pytest.raises(RuntimeError, match="Unknown data type found in stream list"):
        comm.scatter(torch.ones(2), [device], streams=[object()])


CPU = torch.device("cpu")
LARGE = SimpleNamespace(total_memory=100, multi_processor_count=100)
SMALL = SimpleNamespace(total_memory=1, multi_processor_count=1)


@pytest.fixture
def set_sizes(monkeypatch, topology):
    """Return a function that sets the properties of all devices and returns their ordinals."""

    def set_properties(*properties):
        module = torch.get_device_module(topology.accelerator)
        monkeypatch.setattr(module, "get_device_properties", lambda index: properties[index])
        return list(range(len(properties)))

    return set_properties


def balance_warnings(device_ids):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _devices.check_balance(device_ids)
    return [str(warning.message) for warning in caught]


def test_gpus_without_reported_memory_do_not_warn(set_sizes):
    # Drivers of virtual GPUs report 0 bytes. torch.nn.parallel divides by this number.
    without_memory = SimpleNamespace(total_memory=0, multi_processor_count=4)
    assert balance_warnings(set_sizes(without_memory, without_memory)) == []


@pytest.fixture
def data_parallel_module(set_sizes, monkeypatch):
    """The module impl.data_parallel, patched to find two GPUs of unequal size."""
    fake_placement = _devices.Placement(set_sizes(LARGE, SMALL), 0, torch.device("cuda", 0))
    # The attribute ``data_parallel`` of impl is the function, not the module.
    module = importlib.import_module("impl.data_parallel")
    monkeypatch.setattr(module, "choose_devices", lambda *_: fake_placement)
    return module


@pytest.mark.usefixtures("data_parallel_module")
def test_constructor_warns_of_unequal_gpus():
    with pytest.warns(UserWarning, match="exclude GPU 1") as caught:
        DataParallel(nn.Tanh())
    line = inspect.currentframe().f_lineno - 1
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)]


def test_constructor_calls_a_patched_check_balance(data_parallel_module, monkeypatch):
    checked = []
    monkeypatch.setattr(data_parallel_module, "_check_balance", checked.append)
    DataParallel(nn.Tanh())
    assert checked == [[0, 1]]


@pytest.fixture
def no_accelerator(monkeypatch):
    """A machine without an accelerator."""
    for module in (_devices, sys.modules[as_device_or_current.__module__]):
        monkeypatch.setattr(module, "accelerator_type", lambda: None)
    monkeypatch.setattr(_devices, "type_to_use", lambda _: None)


@pytest.mark.usefixtures("no_accelerator")
@pytest.mark.parametrize("call", [DataParallel, partial(data_parallel, inputs=torch.ones(2, 2))])
@given(
    devices=st.tuples(
        st.lists(st.sampled_from(["cpu", CPU]), min_size=1, max_size=3),
        st.lists(st.sampled_from([0, 3, "cuda:1"]), min_size=1, max_size=3),
    ).flatmap(lambda both: st.permutations([*both[0], *both[1]]))
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_cpu_beside_other_devices_is_refused_without_an_accelerator(call, devices):
    with pytest.raises(ValueError, match="Expected a non cpu device, but got: cpu"):
        call(nn.Linear(2, 1), device_ids=devices)


@pytest.mark.usefixtures("no_accelerator")
@pytest.mark.parametrize("output", [0, 2, "cuda", "cuda:1", "meta"])
@pytest.mark.parametrize("count", [1, 2])
def test_lanes_refuse_an_output_device_that_does_not_exist(count, output):
    with pytest.raises(RuntimeError, match="when none is available") as caught:
        DataParallel(nn.Linear(2, 1), ["cpu"] * count, output_device=output)
    assert caught.value.__notes__ == [f"Argument: output_device={output!r}"]


class InterruptedSetter:
    """A setter whose first call that sets ``value`` raises an error, without effect."""

    def __init__(self, setter, value, error=KeyboardInterrupt):
        self.setter, self.value, self.error = setter, value, error
        self.is_interrupted = False

    def __call__(self, value):
        if value == self.value and not self.is_interrupted:
            self.is_interrupted = True
            raise self.error
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


def test_a_signal_handler_that_ends_the_process_does_not_stop_the_restoration():
    values = []
    setter = InterruptedSetter(values.append, "before", SystemExit)
    with pytest.raises(SystemExit):
        call_with_setting(setter, "value", "before", int)
    assert values == ["value", "before"]
