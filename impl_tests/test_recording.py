"""impl._recording: wrappers and functions under torch.export and torch.jit.trace."""

import pytest
import torch
from torch import nn

import impl
from impl import _torch_private
from impl._containers import Whole
from impl._recording import is_movable, move_tensors
from impl_tests.samples import Pair


def test_moved_arguments_equal_arguments_scattered_to_one_device(topology):
    device = topology.device(0)
    on_device, on_cpu = torch.ones(4, 2, device=device), torch.ones(4, 2)
    args = (on_device, [on_cpu, None], {"key": (on_cpu, 2.0)}, "text", torch.tensor(3.0))
    assert is_movable(args, 0)
    (expected,) = impl.scatter(args, [device])
    assert repr(move_tensors(args, device)) == repr(expected)


def test_move_tensors_returns_new_containers(topology):
    args = ([torch.ones(2)], {"key": 1})
    found = move_tensors(args, torch.device("cpu"))
    assert found[0] is not args[0]
    assert found[1] is not args[1]
    assert found[0][0] is args[0][0]


@pytest.mark.parametrize(
    "value",
    [Pair(1, 2), Whole(1), torch.Size([1]), [[Whole(1)]], {"key": Pair(1, 2)}],
    ids=repr,
)
def test_named_tuples_sizes_and_markers_are_not_movable(value):
    assert not is_movable(value, 0)


@pytest.mark.parametrize("dim", [1, -2])
def test_tensor_without_the_split_dimension_is_not_movable(dim):
    assert not is_movable([torch.ones(2)], dim)
    assert is_movable([torch.ones(2, 2), torch.tensor(1)], dim)


@pytest.mark.filterwarnings("ignore:.torch.jit.trace")
def test_tracing_scatter_raises(topology):
    class Scattered(nn.Module):
        def forward(self, x):
            return impl.scatter(x, topology.take(2))

    with pytest.raises(RuntimeError, match=r"trace the module itself"):
        torch.jit.trace(Scattered(), torch.ones(4))


def test_wrapper_of_one_device_can_be_exported(topology):
    wrapper = impl.DataParallel(nn.Linear(2, 1), topology.take(1))
    x = torch.rand(3, 2, device=topology.device(0))
    exported = torch.export.export(wrapper, (x,))
    torch.testing.assert_close(exported.module()(x), wrapper(x))


def test_exclude_from_compilation_returns_a_working_function_without_dynamo(monkeypatch):
    monkeypatch.delattr(torch._C._dynamo.eval_frame, "set_code_exec_strategy")

    @_torch_private.exclude_from_compilation
    def function():
        return 1

    assert function() == 1
