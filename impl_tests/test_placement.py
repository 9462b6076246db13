"""impl._placement: the devices of a wrapper, and warnings of ignored and unequal devices."""

import inspect
import sys
import warnings
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from impl import DataParallel, DataParallelWithLoss, _placement, data_parallel

#: The module ``impl.data_parallel``. The attribute ``data_parallel`` of impl is the function.
MODULE = sys.modules["impl.data_parallel"]
CPU = torch.device("cpu")
MIXED = "device_ids, which mixes the CPU with other devices"
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


def test_gpus_without_reported_memory_do_not_warn(set_sizes):
    # Drivers of virtual GPUs report 0 bytes. torch.nn.parallel divides by this number.
    without_memory = SimpleNamespace(total_memory=0, multi_processor_count=4)
    _placement.check_balance(set_sizes(without_memory, without_memory))  # A warning is an error.


@pytest.fixture
def data_parallel_module(set_sizes, monkeypatch):
    """The module impl.data_parallel, patched to find two GPUs of unequal size."""
    fake_placement = _placement.Placement(set_sizes(LARGE, SMALL), 0, torch.device("cuda", 0))
    monkeypatch.setattr(MODULE, "choose_devices", lambda *_: fake_placement)
    return MODULE


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
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)


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
    with pytest.raises(ValueError, match="Expected a non cpu device, but got: cpu") as caught:
        call(nn.Linear(2, 1), device_ids=devices)
    assert caught.value.__notes__ == [f"Argument: {MIXED}"]


@pytest.mark.usefixtures("no_accelerator")
@pytest.mark.parametrize("output", [0, 2, "cuda", "cuda:1", "meta"])
@pytest.mark.parametrize("count", [1, 2])
def test_cpu_replicas_refuse_an_output_device_that_does_not_exist(count, output):
    with pytest.raises(RuntimeError, match="when none is available") as caught:
        DataParallel(nn.Linear(2, 1), ["cpu"] * count, output_device=output)
    assert caught.value.__notes__ == [f"Argument: output_device={output!r}"]


@pytest.mark.parametrize("place", ["first", "last", "output"])
def test_the_constructor_refuses_a_device_that_does_not_exist(topology, place):
    count = torch.accelerator.device_count()
    devices = {"first": [count, 0], "last": [0, count], "output": [0, 0]}[place]
    output = count if place == "output" else None
    missing = torch.device(topology.accelerator, count)
    with pytest.raises(RuntimeError, match=f"no device {missing}: .* devices is {count}"):
        DataParallel(nn.Linear(2, 1), devices, output)


@pytest.mark.parametrize(
    ("devices", "note"), [(["cpu", 0], MIXED), ([0, "cpu"], MIXED), (["gpu:0"], "device 'gpu:0'")]
)
def test_an_error_has_a_note_with_the_wrong_device(topology, devices, note):
    with pytest.raises((ValueError, RuntimeError)) as caught:
        DataParallel(nn.Linear(1, 1), devices)
    assert caught.value.__notes__ == [f"Argument: {note}"]


def test_device_ids_may_be_an_iterator(topology):
    ordinals = [device.index for device in topology.take(2)]
    net = nn.Linear(2, 2).to(topology.device(0))
    x = torch.ones(4, 2, device=topology.device(0))
    wrapper = DataParallel(net, iter(ordinals))
    assert wrapper.device_ids == ordinals
    assert torch.equal(wrapper(x), data_parallel(net, x, iter(ordinals)))


@pytest.mark.parametrize("device_ids", [2, "cpu", torch.device("cpu")], ids=repr)
def test_one_device_instead_of_a_sequence_is_refused(device_ids):
    for call in (
        lambda: DataParallel(nn.Identity(), device_ids),
        lambda: data_parallel(nn.Identity(), torch.ones(2), device_ids),
    ):
        with pytest.raises(TypeError, match="device_ids must be a sequence of devices") as caught:
            call()
        assert str(caught.value).endswith(f"not {device_ids!r}")


@pytest.mark.usefixtures("no_devices")
@pytest.mark.parametrize("kind", [DataParallel, partial(DataParallelWithLoss, criterion=len)])
def test_every_wrapper_that_ignores_its_devices_warns_at_its_line(kind):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        kind(nn.Tanh())
        assert caught == []
        kind(nn.Tanh(), device_ids=[0, 1])
        line = inspect.currentframe().f_lineno - 1
        kind(nn.Tanh(), device_ids=[0, 1])
    assert [(each.filename, each.lineno) for each in caught] == [
        (__file__, line),
        (__file__, line + 2),
    ]
    assert all(str(each.message).startswith("device_ids is ignored") for each in caught)
