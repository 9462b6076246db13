"""impl._tracing: moved arguments; export, traces and scripts of wrappers."""

import pytest
import torch
from torch import nn

import impl
from impl._inputs import Whole
from impl._tracing import is_movable, move_tensors
from spec_tests import checks
from spec_tests.strategies.small_modules import Calls


def test_moved_arguments_equal_arguments_scattered_to_one_device(topology):
    device = topology.device(0)
    on_device, on_cpu = torch.ones(4, 2, device=device), torch.ones(4, 2)
    args = (on_device, [on_cpu, None], {"key": (on_cpu, 2.0)}, "text", torch.tensor(3.0))
    assert is_movable(args, 0)
    (expected,) = impl.scatter(args, [device])
    assert repr(move_tensors(args, device)) == repr(expected)


@pytest.mark.parametrize(
    "value",
    [
        nn.utils.rnn.pack_sequence([torch.ones(1)]),
        Whole(1),
        torch.Size([1]),
        [[Whole(1)]],
        {"key": torch.max(torch.ones(2), 0)},
    ],
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
    module = Calls(lambda _, x: impl.scatter(x, topology.take(2)))
    with pytest.raises(RuntimeError, match=r"trace the module itself"):
        torch.jit.trace(module, torch.ones(4))


def test_wrapper_of_one_device_can_be_exported(topology):
    wrapper = impl.DataParallel(nn.Linear(2, 1), topology.take(1))
    x = torch.rand(3, 2, device=topology.device(0))
    exported = torch.export.export(wrapper, (x,))
    torch.testing.assert_close(exported.module()(x), wrapper(x))


class Scriptable(impl.DataParallel):
    def forward(self, x):
        return self.module(x)


@pytest.mark.filterwarnings("ignore")  # TorchScript is deprecated, and warns of annotations.
def test_a_subclass_can_be_scripted(topology):
    net = nn.Linear(2, 1)
    scripted = torch.jit.script(Scriptable(net, topology.take(1)))
    x = torch.ones(3, 2, device=topology.device(0))
    assert torch.equal(scripted(x), net(x))


@pytest.mark.parametrize("count", [1, 2])
def test_transforms_need_one_device(topology, count):
    net = nn.Linear(3, 2).to(topology.device(0))
    wrapper = impl.DataParallel(net, topology.take(count))
    x = torch.rand(4, 3, device=topology.device(0))
    if count == 1:
        found, expected = (torch.func.jacrev(each)(x) for each in (wrapper, net))
        checks.same(found, expected)
    else:
        with pytest.raises(RuntimeError, match="setup_context") as caught:
            torch.func.grad(lambda each: wrapper(each).sum())(x)
        assert "do not pass through replicas" in caught.value.__notes__[-1]
