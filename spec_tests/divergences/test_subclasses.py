"""Subclasses and attributes of tensors. The copies of the reference are plain: RE-11, SG-14."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.tensors import device_slots

ATTRIBUTES_CLAUSE = clause("divergences.RE-11.attributes-of-tensors-are-kept")
CLASSES_CLAUSE = clause("divergences.RE-11.classes-of-buffers-are-kept")
WRAPPERS_CLAUSE = clause("divergences.RE-11.wrapper-parameters-are-copied")
COPIES_CLAUSE = clause("divergences.SG-14.copies-keep-the-class")
CHUNKS_CLAUSE = clause("divergences.SG-14.chunks-keep-class-and-attributes")


class Named(Tensor):
    """A subclass of Tensor whose tensors have a name."""


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


#: Name of a function of comm -> a function that returns its results for one tensor.
COPIES = {
    "scatter": lambda comm, tensor, devices: comm.scatter(tensor, devices),
    "broadcast": lambda comm, tensor, devices: comm.broadcast(tensor, devices),
    "broadcast_coalesced": lambda comm, tensor, devices: [
        copy for row in comm.broadcast_coalesced([tensor], devices) for copy in row
    ],
}


@COPIES_CLAUSE
@pytest.mark.parametrize("name", COPIES)
def test_copies_of_comm_have_the_class_of_their_tensor(target, topology, name):
    tensor = torch.ones(4, device=topology.device(0)).as_subclass(Named)
    topology.require(distinct=2)
    copies = COPIES[name](target.comm, tensor, topology.take(2))
    checks.same([type(copy) for copy in copies], [Named] * 2, name)


@COPIES_CLAUSE
@pytest.mark.parametrize("name", COPIES)
def test_reference_copies_are_plain_tensors(reference, topology, name):
    tensor = torch.ones(4, device=topology.device(0)).as_subclass(Named)
    topology.require(distinct=2)
    *_, copy = COPIES[name](reference.comm, tensor, topology.take(2))
    checks.same(type(copy), Tensor, name)


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


@ATTRIBUTES_CLAUSE
@given(slots=device_slots(min_size=2))
def test_reference_drops_the_attributes_of_parameters(reference, topology, slots):
    net = Net(topology.device(slots[0]))
    for replica in reference.replicate.replicate(net, topology.take(slots)):
        checks.same(
            [hasattr(replica.plain, "axis"), hasattr(replica.quantized, "state")], [False] * 2
        )


@CLASSES_CLAUSE
@given(slots=device_slots(), detach=st.booleans())
def test_copies_of_buffers_have_their_own_class(target, topology, slots, detach):
    net = Net(topology.device(slots[0]))
    for replica in target.replicate.replicate(net, topology.take(slots), detach):
        found = [type(replica.before), type(replica.named), type(replica.after)]
        checks.same(found, [Tensor, Named, Tensor])


@CLASSES_CLAUSE
def test_reference_copies_a_buffer_of_a_subclass_to_a_plain_tensor(reference, topology):
    replicas = reference.replicate.replicate(Net(topology.device(0)), topology.take((0, 1)))
    checks.same([type(replica.named) for replica in replicas][1], Tensor)


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


@WRAPPERS_CLAUSE
def test_reference_copies_wrapper_parameters_to_plain_tensors(reference, topology):
    topology.require(distinct=2)
    replicas = reference.replicate.replicate(make_pair(topology), topology.take((0, 1)), True)
    checks.same(type(replicas[1].weight), Tensor)


@CHUNKS_CLAUSE
@pytest.mark.parametrize("slot", [0, None], ids=["accelerator", "cpu"])
@given(slots=device_slots(), requires_grad=st.booleans())
def test_chunks_have_the_class_and_the_attributes_of_their_tensor(
    target, topology, slot, slots, requires_grad
):
    rows = torch.arange(float(len(slots))).to(topology.device(slot)).as_subclass(Named)
    rows.axis = {"name": "axis"}
    chunks = target.scatter_gather.scatter(
        rows.requires_grad_(requires_grad), topology.take(slots)
    )
    checks.same([type(chunk) for chunk in chunks], [Named] * len(slots))
    checks.same([chunk.axis is rows.axis for chunk in chunks], [True] * len(slots))


@CHUNKS_CLAUSE
def test_reference_drops_the_attributes_of_inputs(reference, topology):
    rows = torch.arange(4.0).to(topology.device(0)).as_subclass(Named)
    rows.axis = {"name": "axis"}
    chunks = reference.scatter_gather.scatter(rows, topology.take((0, 1)))
    checks.same([hasattr(chunk, "axis") for chunk in chunks], [False, False])
