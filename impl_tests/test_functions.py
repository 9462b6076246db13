"""impl.functions and comm: chunks on the CPU and of it, and where warnings point."""

import inspect

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from impl import comm, functions, gather, scatter
from impl._device.stream import current_stream, side_stream
from spec_tests.harness.concurrency.stream_log import streams_of

GATHER = functions.Gather.apply


class WaitLog(torch.Stream):
    """Notes for which streams it waits."""

    awaited = ()

    def wait_stream(self, other):
        super().wait_stream(other)
        self.awaited = (*self.awaited, other)


class OwnerLog(TorchDispatchMode):
    """Notes memory that a stream uses beside the one that it was allocated on."""

    def __init__(self):
        super().__init__()
        self.recorded = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.record_stream.default:
            self.recorded.append((args[0].data_ptr(), args[1]))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def streams(monkeypatch):
    """Hand out one current stream a device, each of which notes for what it waits."""
    found = {}

    def current_stream_of(ordinal):
        if ordinal not in found:
            stream = ask(ordinal)
            device = {"device_index": stream.device_index, "device_type": stream.device_type}
            found[ordinal] = WaitLog(stream_id=stream.stream_id, **device)
        return found[ordinal]

    ask = torch.accelerator.current_stream
    monkeypatch.setattr(torch.accelerator, "current_stream", current_stream_of)
    return found


@pytest.mark.parametrize("spelled", [("cpu", "cpu"), ("cpu", 0), (0, "cpu")], ids=str)
def test_chunks_on_the_cpu_have_gradients(topology, spelled):
    device = topology.device(0)
    x = torch.arange(4.0, device=device, requires_grad=True)
    devices = [device if each == 0 else each for each in spelled]
    chunks = functions.Scatter.apply(devices, None, 0, x)
    assert [chunk.device.type for chunk in chunks] == [torch.device(each).type for each in devices]
    (slope,) = torch.autograd.grad(chunks, x, [chunk.detach() for chunk in chunks])
    assert (slope.device, slope.tolist()) == (device, x.tolist())


def test_chunks_of_a_cpu_tensor_are_copied_beside_the_current_stream(topology):
    devices = topology.take(2)
    used = streams_of(lambda: functions.Scatter.apply(devices, None, 0, torch.ones(4)))
    assert used == [side_stream(device) for device in devices]
    assert used != [current_stream(device) for device in devices]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_current_stream_waits_for_what_was_copied_beside_it(topology, streams, count):
    topology.require(distinct=count)
    devices = list(dict.fromkeys(topology.devices))[:count]
    functions.Scatter.apply(devices, None, 0, torch.ones(2 * count))
    awaited = {ordinal: stream.awaited for ordinal, stream in streams.items()}
    assert awaited == {device.index: (side_stream(device),) for device in devices}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_memory_that_was_copied_beside_is_the_current_stream_s_too(topology, count):
    devices = topology.take(count)
    with OwnerLog() as log:
        chunks = functions.Scatter.apply(devices, None, 0, torch.ones(2 * count))
    owners = [current_stream(device) for device in devices]
    pointers = [chunk.data_ptr() for chunk in chunks]
    assert log.recorded == list(zip(pointers, owners, strict=True))


def test_chunks_of_a_cpu_tensor_on_the_cpu_are_views():
    x = torch.arange(4.0)
    chunks = functions.Scatter.apply(["cpu", "cpu"], None, 0, x)
    pointers = [chunk.data_ptr() - x.data_ptr() for chunk in chunks]
    assert pointers == [0, 2 * x.itemsize]


def test_chunks_of_other_tensors_are_copied_on_the_current_stream(topology):
    topology.require(distinct=2)
    first, second = list(dict.fromkeys(topology.devices))[:2]
    x = torch.ones(4, device=first)
    used = streams_of(lambda: functions.Scatter.apply([second], None, 0, x))
    assert used == [current_stream(second)]


def test_a_warning_of_comm_points_at_its_caller(topology):
    x = torch.ones(1, device=topology.device(0))
    with pytest.warns(FutureWarning, match="-1") as caught:
        comm.gather([x], 0, -1)
    here = inspect.currentframe().f_lineno - 1
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, here)]


def test_warnings_of_a_function_point_at_what_applied_it(topology):
    x = torch.tensor(1.0, device=topology.device(0))
    with pytest.warns() as caught:
        functions.Gather.apply(-1, 0, x)
    assert {warning.category for warning in caught} == {UserWarning, FutureWarning}
    assert {warning.filename for warning in caught} == {torch.autograd.function.__file__}


@pytest.mark.filterwarnings("ignore:Using -1:FutureWarning")
@pytest.mark.parametrize("gathered", [comm.gather, lambda x, dim, to: GATHER(to, dim, *x)])
def test_minus_one_is_the_cpu_whatever_the_default_device(topology, gathered):
    x = torch.ones(1, device=topology.device(0))
    with topology.device(1):
        assert gathered([x], 0, -1).device == torch.device("cpu")


@pytest.mark.parametrize("where", ["accelerator", "cpu"])
def test_chunks_of_one_tensor_have_one_node(topology, where):
    device = topology.device(0) if where == "accelerator" else torch.device("cpu")
    x = torch.ones(4, device=device, requires_grad=True)
    chunks = scatter(x, topology.take(2))
    assert len({chunk.grad_fn for chunk in chunks}) == 1


def test_chunks_without_gradients_have_none(topology):
    x = torch.ones(4, device=topology.device(0), requires_grad=True)
    with torch.no_grad():
        assert [chunk.grad_fn for chunk in scatter(x, topology.take(2))] == [None, None]


# PyTorch scripts its own forward derivatives when the first one is asked for.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_tangents_pass_where_no_gradient_is_to_flow(topology):
    with forward_ad.dual_level():
        x = torch.ones(4, device=topology.device(0))
        chunks = scatter(forward_ad.make_dual(x, 2 * x), topology.take(2))
        whole = gather(chunks, topology.device(0))
        tangents = [forward_ad.unpack_dual(each).tangent.tolist() for each in (*chunks, whole)]
    assert tangents == [[2.0] * 2, [2.0] * 2, [2.0] * 4]
