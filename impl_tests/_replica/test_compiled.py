"""impl._replica.compiled: which replicas count as running compiled code."""

import pytest
import torch
from torch import nn

import impl
from impl._compat.torch_private import next_sequence_nr
from impl._replica import compiled
from impl._replica.compiled import has_compiled_code
from spec_tests.divergences.compile_backends import CountingBackend
from spec_tests.divergences.compiled import COMPILATIONS


def test_all_above_a_compiled_module_have_compiled_code_wherever_it_is_reached_first():
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
    found = has_compiled_code(replica)  # Not in the assertion, which would print the module.
    assert found


class Own(nn.Linear):
    """Makes its replicas itself."""

    def _replicate_for_data_parallel(self):
        return super()._replicate_for_data_parallel()


@pytest.mark.parametrize("how", ["torch.compile(m)", "m.compile()"])
@pytest.mark.parametrize("kind", [nn.Linear, Own])
@pytest.mark.parametrize("depth", [0, 1])
def test_replicas_without_a_known_compiler_run_uncompiled(monkeypatch, depth, kind, how):
    for name in ("compilation_in_place", "compilation_of_wrapper"):
        monkeypatch.setattr(compiled, name, lambda _: None)
    backend = CountingBackend()
    net = COMPILATIONS[how](kind(1, 1), backend)
    one, other = impl.replicate(nn.Sequential(net) if depth else net, ["cpu", "cpu"], detach=True)
    assert not has_compiled_code(one)
    with torch.no_grad():
        for parameter, value in zip(former(other), (3, 1), strict=True):
            parameter.fill_(value)
        assert other(torch.ones(1, 1)).item() == 4
    assert backend.devices == []


def former(replica):
    """A replica's parameters: the weight and the bias of the one module that has some."""
    found = [each._former_parameters for each in replica.modules()]
    return next(each for each in found if each).values()


class Scaled(nn.Module):
    def forward(self, x, *, factor=1):
        return factor * x


@pytest.mark.parametrize("how", ["torch.compile(m)", "m.compile()"])
def test_compiled_replicas_take_keyword_arguments(how):
    (replica,) = impl.replicate(COMPILATIONS[how](Scaled(), "eager"), ["cpu"])
    assert replica(torch.ones(1), factor=3).item() == 3


@pytest.mark.parametrize("how", ["torch.compile(m)", "m.compile()"])
def test_module_with_compiled_children_is_compiled_as_one(how):
    (part,) = impl.replicate(COMPILATIONS[how](Scaled(), "eager"), ["cpu"])
    backend = CountingBackend()
    larger = torch.compile(lambda x: part(x + 1, factor=2) + 1, backend=backend, fullgraph=True)
    assert larger(torch.ones(1)).item() == 5
    assert len(backend.devices) == 1


class Doubled(torch.autograd.Function):
    """Its node in backward is of the kind that compiled code leaves."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


@pytest.fixture
def parted(monkeypatch):
    """A pass of backward that was given context variables of its own leaves an entry."""
    noted = []
    monkeypatch.setattr(compiled, "_use_own_context", noted.append)
    return noted


def test_each_compiled_node_behind_an_output_has_its_own_context_once(parted):
    x = torch.ones(1, requires_grad=True)
    first = next_sequence_nr()
    shared = Doubled.apply(x)
    out = [Doubled.apply(shared), Doubled.apply(shared), torch.ones(1)]
    compiled._separate_backward_contexts(out, first)
    sum(out).backward()
    assert len(parted) == 3


def test_nodes_that_were_there_before_the_call_are_left_alone(parted):
    before = Doubled.apply(torch.ones(1, requires_grad=True))
    first = next_sequence_nr()
    out = Doubled.apply(before.exp())
    compiled._separate_backward_contexts(out, first)
    out.backward()
    assert len(parted) == 1


def test_nodes_that_a_module_makes_where_its_caller_wants_none_have_their_contexts(parted):
    x = torch.ones(1, requires_grad=True)

    def function(replica, args, kwargs):
        with torch.enable_grad():
            return Doubled.apply(x)

    with torch.no_grad():
        out = compiled._CompiledCall(function, nn.Identity)()
    out.backward()
    assert len(parted) == 1
