"""Classes and attributes of parameters and buffers. The reference drops them: RE-11."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.tensor_subclasses import Named
from spec_tests.strategies.tensors import device_slots

ATTRIBUTES_CLAUSE = clause("divergences.RE-11.attributes-of-tensors-are-kept")
WRAPPERS_CLAUSE = clause("divergences.RE-11.wrapper-parameters-are-copied")


class Quantized(nn.Parameter):
    """A subclass of Parameter with a state, like the parameters of bitsandbytes."""

    def __new__(cls, data, state):
        parameter = Tensor._make_subclass(cls, data, require_grad=False)
        parameter.state = state
        return parameter


class Net(nn.Module):
    """A module with parameters and buffers that have attributes and classes."""

    def __init__(self, device):
        super().__init__()
        self.plain = nn.Parameter(torch.ones(3, device=device))
        self.quantized = Quantized(torch.ones(3, device=device), ["state"])
        self.register_buffer("before", torch.ones(3, device=device))
        self.register_buffer("named", torch.ones(3, device=device).as_subclass(Named))
        self.register_buffer("after", torch.ones(3, device=device))
        self.plain.axis = self.named.axis = self.after.axis = {"name": "axis"}

    def forward(self, x):
        assert self.quantized.state == ["state"]
        return x * self.plain * self.quantized


@ATTRIBUTES_CLAUSE
@given(slots=device_slots(), detach=st.booleans())
def test_copies_of_parameters_and_buffers_have_their_attributes(target, topology, slots, detach):
    net = Net(topology.device(slots[0]))
    for replica in target.replicate.replicate(net, topology.take(slots), detach):
        for name in ("plain", "named", "after"):
            assert getattr(replica, name).axis is getattr(net, name).axis
        assert replica.quantized.state is net.quantized.state


@ATTRIBUTES_CLAUSE
def test_a_module_reads_the_attributes_of_its_parameters_in_every_replica(target, topology):
    net = Net(topology.device(0))
    wrapper = target.data_parallel.DataParallel(net, topology.take((0, 1)))
    wrapper(torch.ones(4, 3, device=topology.device(0))).sum().backward()
    checks.same(net.plain.grad.tolist(), [4.0, 4.0, 4.0])


@clause("divergences.RE-11.classes-of-buffers-are-kept")
@given(slots=device_slots(), detach=st.booleans())
def test_copies_of_buffers_have_their_own_class(target, topology, slots, detach):
    net = Net(topology.device(slots[0]))
    for replica in target.replicate.replicate(net, topology.take(slots), detach):
        found = [type(replica.before), type(replica.named), type(replica.after)]
        checks.same(found, [Tensor, Named, Tensor])


def make_pair(topology):
    """Return a module whose weight is a tensor with two inner tensors."""
    net = nn.Module()
    rows = torch.arange(3.0).to(topology.device(0))
    net.weight = nn.Parameter(TwoTensor(rows, rows + 1))
    return net


@WRAPPERS_CLAUSE
@given(slots=device_slots(min_size=2), detach=st.booleans())
def test_parameters_of_wrapper_classes_are_copied_by_their_class(target, topology, slots, detach):
    net = make_pair(topology).to(topology.device(slots[0]))
    replicas = target.replicate.replicate(net, topology.take(slots), detach)
    found = [
        (type(each.weight), each.weight.a.tolist(), each.weight.b.tolist()) for each in replicas
    ]
    checks.same(found, [(TwoTensor, [0.0, 1.0, 2.0], [1.0, 2.0, 3.0])] * len(slots))
    devices = [{each.weight.a.device, each.weight.b.device} for each in replicas]
    checks.same(devices, [{device} for device in topology.take(slots)])


@WRAPPERS_CLAUSE
def test_gradients_of_wrapper_parameters_are_summed(target, topology):
    net = make_pair(topology)
    for replica in target.replicate.replicate(net, topology.take((0, 1))):
        (replica.weight * 2).sum().backward()
    checks.same((net.weight.grad.a.tolist(), net.weight.grad.b.tolist()), ([4.0] * 3,) * 2)
