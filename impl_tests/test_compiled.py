"""impl._compiled and impl._tracing: compiled replicas; export, traces and scripts of wrappers."""

import sys
from types import ModuleType

import pytest
import torch
from torch import nn

import impl
from impl._compiled import has_compiled_code
from impl._inputs import Whole
from impl._tracing import is_movable, move_tensors
from spec_tests.harness.compare.compile_backends import CountingBackend
from spec_tests.strategies.compiled_modules import COMPILATIONS


def test_ancestors_of_a_compiled_module_have_compiled_code():
    shared = torch.compile(nn.Linear(1, 1), backend="eager")
    net = nn.Sequential(shared, nn.Sequential(nn.Sequential(shared), nn.Tanh()))
    for replica in impl.replicate(net, ["cpu", "cpu"]):
        found = [has_compiled_code(each) for each in (replica, replica[1], replica[1][0])]
        assert found == [True] * 3
        assert not has_compiled_code(replica[1][1])


def test_module_in_many_places_is_visited_once():
    net = torch.compile(nn.Linear(1, 1), backend="eager")
    for _ in range(40):
        net = nn.Sequential(net, net)
    (replica,) = impl.replicate(net, ["cpu"])
    # If an assertion used ``replica``, its failure would print 2**40 modules.
    found = has_compiled_code(replica)
    assert found


class Scaled(nn.Module):
    def forward(self, x, *, factor=1):
        return factor * x


@pytest.mark.parametrize("style", ["torch.compile(m)", "m.compile()"])
def test_compiled_replicas_accept_keyword_arguments(style):
    (replica,) = impl.replicate(COMPILATIONS[style](Scaled(), "eager"), ["cpu"])
    assert replica(torch.ones(1), factor=3).item() == 3


@pytest.mark.parametrize("style", ["torch.compile(m)", "m.compile()"])
def test_compiled_function_that_calls_a_compiled_replica_is_one_graph(style):
    (replica,) = impl.replicate(COMPILATIONS[style](Scaled(), "eager"), ["cpu"])
    backend = CountingBackend()
    outer = torch.compile(lambda x: replica(x + 1, factor=2) + 1, backend=backend, fullgraph=True)
    assert outer(torch.ones(1)).item() == 5
    assert len(backend.devices) == 1


def test_a_module_can_be_replicated_while_another_thread_imports_the_compiler(monkeypatch):
    name = "torch._dynamo.eval_frame"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # The class is not yet defined.
    assert len(impl.replicate(nn.Linear(2, 2), ["cpu"] * 2)) == 2


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


class Scriptable(impl.DataParallel):
    def forward(self, x):
        return self.module(x)


@pytest.mark.filterwarnings("ignore")  # TorchScript is deprecated, and warns of annotations.
def test_a_subclass_can_be_scripted(topology):
    net = nn.Linear(2, 1)
    scripted = torch.jit.script(Scriptable(net, topology.take(1)))
    x = torch.ones(3, 2, device=topology.device(0))
    assert torch.equal(scripted(x), net(x))
