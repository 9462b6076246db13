"""impl.functions and impl.comm: chunks on the CPU, and the locations of warnings."""

import inspect

import pytest
import torch
from torch.autograd import forward_ad

from impl import comm, functions, gather, scatter


def test_chunks_of_a_cpu_tensor_on_the_cpu_are_views():
    x = torch.arange(4.0)
    chunks = functions.Scatter.apply(["cpu", "cpu"], None, 0, x)
    pointers = [chunk.data_ptr() - x.data_ptr() for chunk in chunks]
    assert pointers == [0, 2 * x.itemsize]


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


def test_a_subclass_may_have_other_arguments(topology):
    class WithOption(functions.Gather):
        @staticmethod
        def forward(ctx, target_device, dim, option, *inputs):
            assert option == "option"
            return functions.Gather.forward(ctx, target_device, dim, *inputs)

    x = torch.ones(2, device=topology.device(0))
    assert WithOption.apply("cpu", 0, "option", x, x).tolist() == [1] * 4
