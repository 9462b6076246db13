"""Late inputs: what a call sees of them, and what is as it was afterwards."""

import pytest
import torch

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.outcome import observe
from spec_tests.harness.concurrency import delayed_inputs
from spec_tests.harness.concurrency.stream_log import current_device_and_streams
from spec_tests.harness.environment.target import Target
from spec_tests.strategies.calls import DeviceAt, PublicCall
from spec_tests.strategies.comm import dense
from spec_tests.strategies.sparse import SparseSpec
from spec_tests.strategies.tensors import LAYOUTS, TensorSpec


@pytest.fixture
def delayed():
    """Every call's inputs are late inside the test."""
    delayed_inputs.set_delay(1)
    yield
    delayed_inputs.set_delay(0)


@pytest.fixture
def held(monkeypatch):
    """The devices that were held, in order; `held.look` is called each time."""

    class Held(list):
        look = staticmethod(lambda: None)

    found = Held()

    def hold(device, milliseconds):
        found.append((device, milliseconds, found.look()))

    monkeypatch.setattr(delayed_inputs, "queue_sleep", hold)
    return found


def test_while_a_device_is_held_the_values_are_not_there(delayed, held, topology):
    inputs = {"one": dense().build(topology) + 1, "other": [dense(slot=1).build(topology) + 1]}
    held.look = lambda: (inputs["one"].any().item(), inputs["other"][0].any().item())
    with delayed_inputs.delayed(inputs, topology):
        assert [inputs["one"].sum().item(), inputs["other"][0].sum().item()] == [78, 78]
    devices = list(dict.fromkeys(topology.devices))
    assert held == [(device, 1, (False, False)) for device in devices]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_inputs_come_back_as_they_were(delayed, held, topology, layout):
    tensor = TensorSpec((2, 3, 4, 2), layout=layout, requires_grad=True).build(topology)
    before = tensor.detach().clone(), tensor._version, tensor.stride(), tensor.data_ptr()
    with delayed_inputs.delayed({"tensor": tensor}, topology):
        torch.testing.assert_close(tensor.detach(), before[0], rtol=0, atol=0)
    assert (tensor._version, tensor.stride(), tensor.data_ptr()) == before[1:]
    assert held


def test_what_is_not_on_a_device_is_left_alone(delayed, held, topology):
    on_cpu, sparse = dense(slot=None).build(topology), SparseSpec().build(topology)
    values = sparse.to_dense().cpu()
    with delayed_inputs.delayed({"on_cpu": on_cpu, "sparse": sparse}, topology):
        assert on_cpu.sum() == 66
        assert torch.equal(sparse.to_dense().cpu(), values)


def test_other_streams_are_current_inside_only(delayed, topology):
    with torch.accelerator.device_index(topology.device(1).index):
        before = current_device_and_streams(topology)
        with delayed_inputs.delayed({}, topology):
            index, streams = current_device_and_streams(topology)
            assert index == before[0] == topology.device(1).index
            assert all(one != other for one, other in zip(streams, before[1], strict=True))
        assert current_device_and_streams(topology) == before


def test_an_error_leaves_device_and_streams_as_they_were(delayed, topology):
    before = current_device_and_streams(topology)
    with pytest.raises(ZeroDivisionError), delayed_inputs.delayed({}, topology):
        raise ZeroDivisionError
    assert current_device_and_streams(topology) == before


def test_a_call_comes_to_the_same_with_late_inputs(held, topology):
    call = PublicCall(
        "comm.scatter", {"tensor": dense(), "devices": [DeviceAt(0), DeviceAt(1), DeviceAt(2)]}
    )
    target = Target("impl")
    in_time = observe(call, target, topology)
    assert not held
    delayed_inputs.set_delay(1)
    try:
        checks.same(observe(call, target, topology).result, in_time.result)
    finally:
        delayed_inputs.set_delay(0)
    assert held


def test_without_a_delay_nothing_is_held(held, topology):
    before = current_device_and_streams(topology)
    with delayed_inputs.delayed({"one": dense().build(topology)}, topology):
        assert current_device_and_streams(topology) == before
    assert not held
