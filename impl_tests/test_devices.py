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

from impl import DataParallel, _copies, _devices, comm, data_parallel, scatter
from impl._devices import (
    as_device_or_current,
    call_on_device,
    call_on_stream,
    call_on_streams,
    choose_devices,
    current_stream_by_device,
    type_to_use,
)
from impl._settings import call_with_setting
from impl.functions import Broadcast, Scatter, _get_stream


def test_set_current_streams_does_not_set_streams_that_are_current(topology, monkeypatch):
    # On CUDA, set_stream would create a context on an unused device, and a context takes memory.
    streams = [*map(_devices.current_stream, dict.fromkeys(topology.devices))]
    monkeypatch.setattr(torch.accelerator, "set_stream", None)
    _devices.set_current_streams(streams)


def test_device_functions_raise_without_an_accelerator(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    assert _devices.accelerator_type() is None
    for call in lambda: _devices.device_at(0), _devices.current_device:
        with pytest.raises(RuntimeError, match="accelerator device when none is available"):
            call()


def test_unavailable_accelerator_has_no_type(topology, monkeypatch):
    module = torch.get_device_module(topology.accelerator)
    monkeypatch.setattr(module, "is_available", lambda: False)
    _devices._is_usable.cache_clear()
    assert _devices.accelerator_type() is None
    _devices._is_usable.cache_clear()


def test_back_end_without_is_available_is_asked_for_its_device_count(topology, monkeypatch):
    module = torch.get_device_module(topology.accelerator)
    monkeypatch.delattr(module, "is_available")
    _devices._is_usable.cache_clear()
    for count, expected in [(1, topology.accelerator), (0, None)]:
        monkeypatch.setattr(module, "device_count", lambda count=count: count)
        _devices._is_usable.cache_clear()
        assert _devices.accelerator_type() == expected
    _devices._is_usable.cache_clear()


@pytest.mark.parametrize(("name", "expected"), [("cuda", 512), ("cpu", 64), ("xpu", 64)])
def test_alignment_is_that_of_new_tensors_in_bytes(name, expected):
    assert _devices.alignment_on(torch.device(name)) == expected


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


def test_as_target_converts_minus_one_to_the_cpu_and_warns():
    with pytest.warns(FutureWarning, match="Using -1 to represent CPU tensor is deprecated"):
        assert _devices.as_target(-1) == torch.device("cpu")
    with warnings.catch_warnings(action="error"):
        assert _devices.as_target(-1, warns=False) == torch.device("cpu")
        assert _devices.as_target("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    ("device", "expected"), [("sim:0", True), ("meta", False), ("cpu", False)]
)
def test_only_devices_of_usable_accelerators_have_streams(topology, device, expected):
    device = topology.device(0) if device == "sim:0" else torch.device(device)
    assert _devices.has_streams(device) == expected


@pytest.mark.parametrize("ordinal", [0, np.int64(0), IntEnum("Ordinal", {"FIRST": 0}).FIRST])
def test_integers_of_numpy_and_enums_are_ordinals(topology, ordinal):
    expected = torch.device(topology.device(0).type, 0)
    assert _devices.as_device_or_current(ordinal) == expected
    placement = choose_devices([ordinal, ordinal], ordinal)
    assert [*map(type, placement.device_ids)] == [int, int]
    assert type(placement.output_device) is int


@pytest.mark.parametrize("device", [True, 0.0, [0], torch.tensor(0), np.bool_(True)])
def test_other_objects_name_no_device(topology, device):
    with pytest.raises(TypeError, match="a device must be an int, a str"):
        _devices.as_device_or_current(device)
    with pytest.raises(TypeError, match="a device must be an int, a str"):
        choose_devices([0], device)


def test_the_largest_index_of_a_device_is_127(topology):
    kind = topology.device(0).type
    assert _devices.device_at(127) == torch.device(kind, 127)
    with pytest.raises(RuntimeError, match="There is no device with the index 128"):
        _devices.device_at(128)
    with pytest.raises(RuntimeError, match="There is no device with the index 1000"):
        choose_devices([1000], None)


def test_a_tensor_is_not_minus_one():
    assert not _devices.is_minus_one(torch.tensor([-1, -1]))


def test_the_accelerator_has_the_functions_of_torch_accelerator(topology):
    assert _devices.runtime(None) is torch.accelerator
    assert _devices.runtime(topology.accelerator) is torch.accelerator


def test_every_type_has_the_functions_of_torch_accelerator_if_there_is_none(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    assert _devices.runtime("xpu") is torch.accelerator


@pytest.mark.parametrize("convert", [str, torch.device])
def test_a_device_of_a_type_that_can_be_used_keeps_its_type(monkeypatch, convert):
    monkeypatch.setattr(_devices, "_is_usable", lambda kind: kind != "cpu")
    assert _devices.as_device_or_current(convert("xpu:1")) == torch.device("xpu", 1)


@pytest.mark.parametrize("convert", [str, torch.device])
def test_a_device_of_another_type_is_one_of_the_accelerator(topology, convert):
    assert _devices.as_device_or_current(convert("xpu:1")) == topology.device(1)


def test_devices_of_apple_have_no_streams(monkeypatch):
    monkeypatch.setattr(_devices, "_is_usable", lambda _: True)
    assert not _devices.has_streams(torch.device("mps", 0))
    assert _devices.has_streams(torch.device("xpu", 0))


def test_the_type_of_a_device_string_is_used(topology):
    device = topology.devices[0]
    assert type_to_use(str(device)) == device.type


def test_a_device_without_streams_has_no_side_stream(monkeypatch):
    monkeypatch.setattr(_devices, "_has_side_streams", lambda device: True)
    assert _devices.side_stream(torch.device("mps")) is None


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


def test_scatter_function_asks_for_no_stream_of_a_device_without_a_chunk(topology):
    missing = torch.device(topology.accelerator, torch.accelerator.device_count())
    (chunk,) = Scatter.apply([topology.device(0), missing], None, 0, torch.ones(1))
    assert chunk.device == topology.device(0)


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


def test_cpu_beside_other_devices_raises(topology):
    with pytest.raises(ValueError) as caught:
        _devices.choose_devices([0, "cpu"], None)
    assert str(caught.value) == "Expected a non cpu device, but got: cpu"


@pytest.mark.parametrize("kind", [None, "mps"])
def test_choose_devices_returns_none_without_indexed_accelerator_devices(monkeypatch, kind):
    monkeypatch.setattr(_devices, "type_to_use", lambda _: kind)
    assert _devices.choose_devices([0, 1], 0) is None
    assert _devices.choose_devices(None, None) is None
    assert _devices.choose_devices(["cpu"], None) == ([CPU], CPU, CPU)


def test_gpus_without_reported_memory_do_not_warn(set_sizes):
    # Drivers of virtual GPUs report 0 bytes. torch.nn.parallel divides by this number.
    without_memory = SimpleNamespace(total_memory=0, multi_processor_count=4)
    assert balance_warnings(set_sizes(without_memory, without_memory)) == []


def test_check_balance_takes_a_device_without_index_for_the_current_device(set_sizes, topology):
    set_sizes(SMALL, LARGE)
    with torch.accelerator.device_index(topology.device(1).index):
        (text,) = balance_warnings([0, topology.accelerator])
    assert "exclude GPU 0 which" in text
    assert "of GPU 1." in text


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


def test_without_arguments_all_devices_are_used(topology):
    module = nn.Linear(1, 1).to(topology.device(0))
    found = _devices.choose_devices(None, None, module)
    assert found == ([*range(len(topology.devices))], 0, topology.device(0))
    assert _devices.choose_devices(None, None, nn.Identity()) == found
    assert _devices.choose_devices(None, None, module.forward) == found


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


def test_devices_of_the_cpu_may_have_outputs_elsewhere(topology):
    assert _devices.choose_devices([CPU], 1) == ([CPU], 1, CPU)


def test_device_ids_may_be_an_iterator_over_devices(topology):
    assert _devices.choose_devices(range(2), None) == ([0, 1], 0, topology.device(0))


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


def interrupt(monkeypatch, owner, name, value):
    setter = InterruptedSetter(getattr(owner, name), value)
    monkeypatch.setattr(owner, name, setter)
    return setter


@pytest.fixture
def devices(topology):
    return topology.devices


def test_an_interrupted_call_restores_the_current_device(devices, monkeypatch):
    before = torch.accelerator.current_device_index()
    other = next(device for device in devices if device.index != before)
    setter = interrupt(monkeypatch, torch.accelerator, "set_device_index", before)
    with pytest.raises(KeyboardInterrupt):
        call_on_device(other, int)
    assert setter.is_interrupted
    assert torch.accelerator.current_device_index() == before


def test_an_interrupted_call_restores_the_current_stream(devices, monkeypatch):
    device = devices[0]
    before = torch.accelerator.current_stream(device)
    setter = interrupt(monkeypatch, torch.accelerator, "set_stream", before)
    with pytest.raises(KeyboardInterrupt):
        call_on_stream(torch.Stream(device), int)
    assert setter.is_interrupted
    assert torch.accelerator.current_stream(device) == before


def test_an_interrupted_call_restores_the_streams_of_all_devices(devices, monkeypatch):
    before = current_stream_by_device(devices)
    device = torch.accelerator.current_device_index()
    setter = interrupt(monkeypatch, torch.accelerator, "set_stream", [*before.values()][-1])
    streams = {torch.Stream(device): stream for device, stream in before.items()}
    with pytest.raises(KeyboardInterrupt):
        call_on_streams(streams, int)
    assert setter.is_interrupted
    assert current_stream_by_device(devices) == before
    assert torch.accelerator.current_device_index() == device


def test_an_interrupted_reduction_restores_grad_mode(devices, monkeypatch):
    lists = [[torch.ones(2, device=device)] for device in devices]
    setter = interrupt(monkeypatch, torch, "set_grad_enabled", True)
    with pytest.raises(KeyboardInterrupt):
        comm.reduce_add_coalesced(lists)
    assert setter.is_interrupted
    assert torch.is_grad_enabled()


def test_a_function_without_grad_mode_keeps_its_arguments_and_result():
    def describe(left, *, right):
        return left, right, torch.is_grad_enabled()

    assert _copies.without_grad(describe)(1, right=2) == (1, 2, False)
    assert torch.is_grad_enabled()


def test_a_function_that_is_called_on_the_cpu_gets_all_arguments():
    found = call_on_device(torch.device("cpu"), lambda left, *, right: (left, right), 1, right=2)
    assert found == (1, 2)


def test_a_signal_handler_that_ends_the_process_does_not_stop_the_restoration():
    values = []
    setter = InterruptedSetter(values.append, "before", SystemExit)
    with pytest.raises(SystemExit):
        call_with_setting(setter, "value", "before", int)
    assert values == ["value", "before"]
