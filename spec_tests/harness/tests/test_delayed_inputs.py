"""Delayed inputs get their values late; afterwards inputs, device and streams are unchanged."""

from contextlib import suppress

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
    """Delay the inputs of every call by 1 ms."""
    delayed_inputs.set_delay(1)
    yield
    delayed_inputs.set_delay(0)


@pytest.fixture
def works(monkeypatch):
    """Replace `queue_work` by a function that does not sleep; return the list of its calls.

    An entry of the list has the device, the milliseconds, and the result of `during_work()`.
    """

    class Works(list):
        during_work = staticmethod(lambda: None)

    recorded = Works()

    def record(device, milliseconds):
        recorded.append((device, milliseconds, recorded.during_work()))

    monkeypatch.setattr(delayed_inputs, "queue_work", record)
    return recorded


def test_inputs_are_zero_while_a_device_works(delayed, works, topology):
    inputs = {"x": dense().build(topology) + 1, "nested": [dense(slot=1).build(topology) + 1]}
    works.during_work = lambda: (inputs["x"].any().item(), inputs["nested"][0].any().item())
    with delayed_inputs.delayed(inputs, topology):
        assert [inputs["x"].sum().item(), inputs["nested"][0].sum().item()] == [78, 78]
    devices = list(dict.fromkeys(topology.devices))
    assert works == [(device, 1, (False, False)) for device in devices]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_are_unchanged_after_the_delay(delayed, works, topology, layout):
    tensor = TensorSpec((2, 3, 4, 2), layout=layout, requires_grad=True).build(topology)
    before = tensor.detach().clone(), tensor._version, tensor.stride(), tensor.data_ptr()
    with delayed_inputs.delayed({"tensor": tensor}, topology):
        torch.testing.assert_close(tensor.detach(), before[0], rtol=0, atol=0)
    assert (tensor._version, tensor.stride(), tensor.data_ptr()) == before[1:]
    assert works


def test_cpu_and_sparse_inputs_are_not_delayed(delayed, works, topology):
    on_cpu, sparse = dense(slot=None).build(topology), SparseSpec().build(topology)
    values = sparse.to_dense().cpu()
    with delayed_inputs.delayed({"on_cpu": on_cpu, "sparse": sparse}, topology):
        assert on_cpu.sum() == 66
        assert torch.equal(sparse.to_dense().cpu(), values)


def test_delayed_makes_new_streams_current_inside_the_block_only(delayed, topology):
    with torch.accelerator.device_index(topology.device(1).index):
        before = current_device_and_streams(topology)
        with suppress(ZeroDivisionError), delayed_inputs.delayed({}, topology):
            index, streams = current_device_and_streams(topology)
            assert index == before[0] == topology.device(1).index
            assert all(new != old for new, old in zip(streams, before[1], strict=True))
            raise ZeroDivisionError
        assert current_device_and_streams(topology) == before


def test_late_inputs_do_not_change_the_result(works, topology):
    call = PublicCall(
        "comm.scatter", {"tensor": dense(), "devices": [DeviceAt(0), DeviceAt(1), DeviceAt(2)]}
    )
    target = Target("impl")
    expected = observe(call, target, topology)
    assert not works
    delayed_inputs.set_delay(1)
    try:
        checks.same(observe(call, target, topology).result, expected.result)
    finally:
        delayed_inputs.set_delay(0)
    assert works
