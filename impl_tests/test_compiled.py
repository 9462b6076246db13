"""impl._compiled: replicas of compiled modules."""

import sys
from types import ModuleType

import pytest
import torch
from torch import nn

import impl
from impl._compiled import has_compiled_code
from spec_tests.checks.compile_backends import CountingBackend
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


@pytest.mark.parametrize("style", ["torch.compile(m)", "m.compile()"])
def test_hooks_added_after_compilation_run_as_without_replicas(style):
    module = COMPILATIONS[style](Scaled(), "eager")
    wrapper, x = impl.DataParallel(module, ["cpu"] * 2), torch.ones(2)

    def check():
        torch.testing.assert_close(wrapper(x), module(x))

    check()
    for register, hook in (
        (module.register_forward_hook, lambda _module, _inputs, output: output * 3),
        (module.register_forward_pre_hook, lambda _module, inputs: (inputs[0] + 1,)),
    ):
        handle = register(hook)
        check()
        handle.remove()
        check()


def test_map_in_a_compiled_function_is_not_compiled():
    net = impl.DataParallel(nn.Linear(2, 2), ["cpu"] * 2)
    backend = CountingBackend()
    compiled = torch.compile(lambda x: [*net.map([x, 2 * x])], backend=backend)
    x = torch.ones(3, 2)
    with torch.no_grad():
        for found, batch in zip(compiled(x), [x, 2 * x], strict=True):
            torch.testing.assert_close(found, net.module(batch))
    assert len(backend.devices) == 1  # The graph of ``2 * x``.


def test_a_module_can_be_replicated_while_another_thread_imports_the_compiler(monkeypatch):
    name = "torch._dynamo.eval_frame"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # The class is not yet defined.
    assert len(impl.replicate(nn.Linear(2, 2), ["cpu"] * 2)) == 2
