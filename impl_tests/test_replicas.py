"""impl.replicate and impl._replicas: members, construction and copies of replicas."""

import copy

import pytest
import torch
from hypothesis import given
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

import impl
from impl.replicate import replicate
from spec_tests.strategies.changed_members import changes_members_specs

CPUS = ["cpu"] * 2


def test_global_registration_hooks_are_called_with_the_children_of_replicas():
    module, seen = nn.Sequential(nn.ReLU()), []
    handle = torch_module.register_module_module_registration_hook(
        lambda parent, name, child: seen.append(name)
    )
    try:
        replicate(module, CPUS)
    finally:
        handle.remove()
    assert seen == ["0", "0"]


def test_hooks_and_attributes_of_a_graph_module_are_kept():
    module, seen = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2))), []
    module.factor, module.layer = 7, module.get_submodule("0")
    module.register_forward_hook(lambda called, _, output: output * called.factor)
    module.register_full_backward_hook(lambda *_: seen.append("full"))
    module.layer.register_forward_pre_hook(lambda *_, **__: seen.append("layer"), with_kwargs=True)
    x = torch.ones(1, 2, requires_grad=True)
    for replica in replicate(module, CPUS, with_parameters=True):
        assert replica.layer is replica.get_submodule("0") is not module.layer
        output = replica(x)
        assert torch.equal(output, 7 * nn.functional.linear(x, *module.parameters()))
        output.sum().backward()
    assert seen == ["layer", "full"] * 2


def test_replica_can_be_replicated():
    inner, _ = replicate(replicate(nn.Linear(2, 2), CPUS)[0], CPUS)
    assert inner._former_parameters == {}
    assert inner._is_replica


@pytest.mark.parametrize("trace", [False, True], ids="traced={}".format)
@pytest.mark.parametrize("with_parameters", [False, True], ids="with_parameters={}".format)
def test_the_parameters_of_a_marked_replica_are_attributes(with_parameters, trace):
    # `odeint_adjoint` of torchdiffeq searches the attributes of a module with the mark.
    module = nn.Sequential(nn.Linear(2, 2))
    module = torch.fx.symbolic_trace(module) if trace else module
    for replica in replicate(module, CPUS, with_parameters=with_parameters):
        layer = replica.get_submodule("0")
        is_marked = [getattr(each, "_is_replica", False) for each in (replica, layer)]
        assert is_marked == [not with_parameters] * 2
        found = [each for each in vars(layer).values() if isinstance(each, Tensor)]
        copies = found if is_marked[0] else [*replica.parameters()]
        assert [copy.shape for copy in copies] == [(2, 2), (2,)]


@pytest.mark.parametrize("detach", [False, True])
def test_a_deepcopied_replica_can_be_moved(topology, detach):
    module = nn.Linear(2, 1).to(topology.device(0))
    for replica in replicate(module, topology.take(2), detach, with_parameters=True):
        moved = copy.deepcopy(replica).to("meta")
        assert [each.device.type for each in moved.parameters()] == ["meta"] * 2


class ShallowCopied(nn.Linear):
    """A module whose replicas are shallow copies, which share its dictionary of parameters."""

    def _replicate_for_data_parallel(self):
        return copy.copy(self)


def test_a_replica_may_be_a_shallow_copy_of_its_module(topology):
    module = ShallowCopied(2, 1).to(topology.device(0))
    replicas = replicate(module, topology.take(2))
    assert [type(replica.weight) for replica in replicas] == [Tensor] * 2
    assert [*module._parameters] == ["weight", "bias"]


def test_the_first_copy_of_a_wrapper_parameter_is_no_parameter(topology):
    rows = [torch.ones(2, 1), torch.ones(1, 1)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged, device=topology.device(0))
    module = nn.Module()
    module.weight = nn.Parameter(nested)
    [replica] = replicate(module, topology.take(1))
    assert not list(replica.parameters())
    replica.weight.values().sum().backward()
    assert module.weight.grad.values().tolist() == [[1.0]] * 3


class AssignedDict(nn.ParameterDict):
    """A dictionary whose replicas are assigned, not written."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)


@pytest.mark.parametrize("kind", [nn.ParameterDict, AssignedDict])
def test_a_replica_registers_and_deletes_members_of_its_own(kind):
    module = kind({"kept": torch.ones(1)})
    module.register_buffer("mask", torch.ones(1), persistent=False)
    for replica in replicate(module, CPUS, with_parameters=True):
        replica.register_buffer("mask", torch.zeros(1))
        replica["new"] = torch.ones(1)
        del replica["kept"]
        assert [*replica] == ["new"]
    assert [*module] == [*module.state_dict()] == ["kept"]


@pytest.mark.parametrize("with_parameters", [False, True], ids="with_parameters={}".format)
@given(spec=changes_members_specs())
def test_a_member_of_a_replica_is_in_one_place(topology, spec, with_parameters):
    network = spec.build(topology)
    for replica in impl.replicate(network, topology.take(2), with_parameters=with_parameters):
        for module in replica.modules():
            places = [vars(module), module._parameters, module._buffers, module._modules]
            names = [name for place in places for name in dict(place.items())]
            assert len(names) == len({*names})
