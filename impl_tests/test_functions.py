"""impl.functions and impl.comm: chunks on the CPU, and the locations of warnings."""

import inspect
from unittest.mock import Mock

import pytest
import torch
from torch.autograd import forward_ad

from impl import comm, functions, gather, scatter
from impl._devices import current_stream
from spec_tests.harness.concurrency.stream_log import streams_of

MOCK = Mock(spec=torch.Tensor)


@pytest.mark.parametrize("targets", [("cpu", "cpu"), ("cpu", 0), (0, "cpu")], ids=str)
def test_chunks_on_the_cpu_have_gradients(topology, targets):
    device = topology.device(0)
    x = torch.arange(4.0, device=device, requires_grad=True)
    devices = [device if target == 0 else target for target in targets]
    chunks = functions.Scatter.apply(devices, None, 0, x)
    expected = [torch.device(target).type for target in devices]
    assert [chunk.device.type for chunk in chunks] == expected
    (grad,) = torch.autograd.grad(chunks, x, [chunk.detach() for chunk in chunks])
    assert (grad.device, grad.tolist()) == (device, x.tolist())


def test_chunks_of_a_cpu_tensor_on_the_cpu_are_views():
    x = torch.arange(4.0)
    chunks = functions.Scatter.apply(["cpu", "cpu"], None, 0, x)
    pointers = [chunk.data_ptr() - x.data_ptr() for chunk in chunks]
    assert pointers == [0, 2 * x.itemsize]


def test_chunks_of_an_accelerator_tensor_are_copied_on_the_current_stream(topology):
    topology.require(distinct=2)
    first, second = list(dict.fromkeys(topology.devices))[:2]
    x = torch.ones(4, device=first)
    used = streams_of(lambda: functions.Scatter.apply([second], None, 0, x))
    assert used == [current_stream(second)]


def test_comm_warning_names_the_line_of_the_caller(topology):
    x = torch.ones(1, device=topology.device(0))
    with pytest.warns(FutureWarning, match="-1") as caught:
        comm.gather([x], 0, -1)
    line = inspect.currentframe().f_lineno - 1
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)]


@pytest.mark.filterwarnings("ignore:Using -1:FutureWarning")
@pytest.mark.parametrize(
    "gather_on", [comm.gather, lambda x, dim, target: functions.Gather.apply(target, dim, *x)]
)
def test_device_minus_one_is_the_cpu_under_any_default_device(topology, gather_on):
    x = torch.ones(1, device=topology.device(0))
    with topology.device(1):
        assert gather_on([x], 0, -1).device == torch.device("cpu")


# PyTorch calls torch.jit.script when it computes the first forward derivative.
@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_forward_mode_tangents_are_scattered_and_gathered_without_requires_grad(topology):
    with forward_ad.dual_level():
        x = torch.ones(4, device=topology.device(0))
        chunks = scatter(forward_ad.make_dual(x, 2 * x), topology.take(2))
        whole = gather(chunks, topology.device(0))
        tangents = [forward_ad.unpack_dual(dual).tangent.tolist() for dual in (*chunks, whole)]
    assert tangents == [[2.0] * 2, [2.0] * 2, [2.0] * 4]


@pytest.mark.parametrize(
    ("function", "arguments", "index"),
    [
        (functions.Broadcast, ([0, 1], MOCK), 1),
        (functions.ReduceAddCoalesced, (0, 1, MOCK), 2),
        (functions.Scatter, ([0, 1], None, MOCK, torch.ones(2)), 2),
        (functions.Gather, (MOCK, 0, torch.ones(2)), 0),
    ],
)
def test_an_object_that_only_claims_to_be_a_tensor_is_refused(function, arguments, index):
    with pytest.raises(TypeError, match="a Mock is not a tensor") as caught:
        function.apply(*arguments)
    assert caught.value.__notes__ == [f"Argument: args[{index}] of {function.__name__}.apply"]


def test_a_subclass_may_have_other_arguments(topology):
    class WithOption(functions.Gather):
        @staticmethod
        def forward(ctx, target_device, dim, option, *inputs):
            assert option == "option"
            return functions.Gather.forward(ctx, target_device, dim, *inputs)

    x = torch.ones(2, device=topology.device(0))
    assert WithOption.apply("cpu", 0, "option", x, x).tolist() == [1] * 4
