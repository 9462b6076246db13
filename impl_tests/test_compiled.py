"""impl._compiled: replicas of compiled modules, and context variables in backward."""

import sys
from types import ModuleType

import pytest
import torch
from torch import nn

import impl
from impl import _compiled
from impl._compiled import has_compiled_code
from impl._torch_private import next_sequence_nr
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


class CustomReplication(nn.Linear):
    """A module that overrides ``_replicate_for_data_parallel``."""

    def _replicate_for_data_parallel(self):
        return super()._replicate_for_data_parallel()


@pytest.mark.parametrize("style", ["torch.compile(m)", "m.compile()"])
@pytest.mark.parametrize("kind", [nn.Linear, CustomReplication])
@pytest.mark.parametrize("depth", [0, 1])
def test_replicas_run_uncompiled_if_the_modules_compiler_is_unknown(
    monkeypatch, depth, kind, style
):
    for name in ("compiler_of_module", "compiler_of_wrapper"):
        monkeypatch.setattr(_compiled, name, lambda _: None)
    backend = CountingBackend()
    net = COMPILATIONS[style](kind(1, 1), backend)
    net = nn.Sequential(net) if depth else net
    first, second = impl.replicate(net, ["cpu", "cpu"], detach=True)
    assert not has_compiled_code(first)
    with torch.no_grad():
        for parameter, value in zip(weight_and_bias(second), (3, 1), strict=True):
            parameter.fill_(value)
        assert second(torch.ones(1, 1)).item() == 4
    assert backend.devices == []


def weight_and_bias(replica):
    """Return the weight and the bias of the only Linear module in ``replica``."""
    found = [module._former_parameters for module in replica.modules()]
    return next(parameters for parameters in found if parameters).values()


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


class Double(torch.autograd.Function):
    """An autograd function whose node has a Python class, as nodes of compiled code have."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


@pytest.fixture
def own_contexts(monkeypatch):
    """A list of the nodes that run with their own context variables in backward."""
    found = []
    monkeypatch.setattr(_compiled, "_use_own_context", found.append)
    monkeypatch.setattr(_compiled, "_SHARES_CONTEXT", True)  # False since PyTorch 2.14
    return found


def test_each_node_of_a_compiled_call_uses_its_own_context_once(own_contexts):
    x = torch.ones(1, requires_grad=True)
    first = next_sequence_nr()
    shared = Double.apply(x)
    out = [Double.apply(shared), Double.apply(shared), torch.ones(1)]
    _compiled._separate_backward_contexts(out, first)
    sum(out).backward()
    assert len(own_contexts) == 3


def test_nodes_created_before_the_call_use_the_callers_context(own_contexts):
    before = Double.apply(torch.ones(1, requires_grad=True))
    first = next_sequence_nr()
    out = Double.apply(before.exp())
    _compiled._separate_backward_contexts(out, first)
    out.backward()
    assert len(own_contexts) == 1


def test_nodes_created_under_enable_grad_use_their_own_contexts(own_contexts):
    x = torch.ones(1, requires_grad=True)

    def function(replica, args, kwargs):
        with torch.enable_grad():
            return Double.apply(x)

    with torch.no_grad():
        out = _compiled._CompiledCall(function, nn.Identity)()
    out.backward()
    assert len(own_contexts) == 1


def test_a_module_can_be_replicated_while_another_thread_imports_the_compiler(monkeypatch):
    name = "torch._dynamo.eval_frame"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # The class is not yet defined.
    assert len(impl.replicate(nn.Linear(2, 2), ["cpu"] * 2)) == 2
