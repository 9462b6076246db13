"""What C++ replicate does: a deep clone a device, and a node a parameter that sums gradients.

Facts of the C++ system itself; neither target nor reference is asked.
"""

import pytest
import torch

from spec_tests.cpp_front_end.backward import forward, is_reduced_early
from spec_tests.cpp_front_end.modules import KINDS, cpp_tensors, cpp_twin
from spec_tests.harness.conformance.clauses import clause

NODE = "ReduceAdd"


def replicas_of(front_end, topology, kind, count):
    module = cpp_twin(front_end, kind, 0, topology.device(0))
    return module, front_end.replicate(module, topology.take(count))


def batch(kind, device, rows=4):
    return torch.randn(rows, *KINDS[kind][1], device=device)


def loss_of(front_end, replicas, topology, kind):
    inputs = [batch(kind, topology.device(slot)) for slot in range(len(replicas))]
    outputs = front_end.parallel_apply(replicas, inputs, None)
    return sum(output.square().sum().cpu() for output in outputs)


@clause("cpp.replicate.clones")
@pytest.mark.parametrize("kind", KINDS)
def test_every_replica_has_memory_of_its_own(front_end, topology, kind):
    module, replicas = replicas_of(front_end, topology, kind, 3)
    held = [{each.data_ptr() for each in cpp_tensors(one).values()} for one in (module, *replicas)]
    assert len(set.union(*held)) == sum(map(len, held))


@clause("cpp.replicate.clones")
@pytest.mark.parametrize("kind", KINDS)
def test_every_replica_is_on_its_device_with_equal_tensors(front_end, topology, kind):
    module, replicas = replicas_of(front_end, topology, kind, 3)
    expected = cpp_tensors(module)
    for device, replica in zip(topology.take(3), replicas, strict=True):
        found = cpp_tensors(replica)
        assert {each.device for each in found.values()} == {device}
        assert all(torch.equal(found[name].cpu(), expected[name].cpu()) for name in expected)


@clause("cpp.replicate.buffers-are-lost")
def test_no_replica_updates_the_buffers_of_the_module(front_end, topology):
    module, replicas = replicas_of(front_end, topology, "batch_norm", 2)
    loss_of(front_end, replicas, topology, "batch_norm")
    counts = [one.buffers()["body.0.num_batches_tracked"].item() for one in (module, *replicas)]
    assert counts == [0, 1, 1]


@clause("cpp.replicate.one-node-a-parameter")
@pytest.mark.parametrize("kind", ["linear", "layers", "scaled"])
def test_the_copies_of_one_tensor_share_a_node_and_no_two_tensors_do(front_end, topology, kind):
    _, replicas = replicas_of(front_end, topology, kind, 3)
    nodes = [
        {name: each.grad_fn for name, each in cpp_tensors(one).items() if each.requires_grad}
        for one in replicas
    ]
    assert all(NODE in node.name() for found in nodes for node in found.values())
    # A node has no identity in Python, but a number that no other node of its thread has.
    numbers = [{name: node._sequence_nr() for name, node in found.items()} for found in nodes]
    assert numbers[0] == numbers[1] == numbers[2]
    assert len(set(numbers[0].values())) == len(numbers[0])


@clause("cpp.replicate.early-reduction")
def test_the_last_layer_is_reduced_while_backward_is_held_in_the_middle(front_end, topology):
    topology.require(distinct=2)
    module, replicas = replicas_of(front_end, topology, "layers", 2)
    pairs = zip(replicas, topology.take(2), strict=True)
    home, away = [forward(replica.part, device) for replica, device in pairs]
    assert is_reduced_early(module.parameters()["body.4.weight"], home, away)


@clause("cpp.replicate.no-double-backward")
@pytest.mark.parametrize("count", [1, 2], ids="devices={}".format)
def test_gradients_of_gradients_are_refused(front_end, topology, count):
    module, replicas = replicas_of(front_end, topology, "linear", count)
    loss = loss_of(front_end, replicas, topology, "linear")
    text = "ReduceAdd can only be used during the backward pass of data parallel."
    with pytest.raises(RuntimeError) as caught:
        torch.autograd.grad(loss, list(module.parameters().values()), create_graph=True)
    assert text in str(caught.value)


def first_layers_only(replicas, topology):
    pairs = zip(replicas, topology.take(len(replicas)), strict=True)
    return sum(one.part(batch("layers", device), 0, 1).sum().cpu() for one, device in pairs)


@clause("cpp.replicate.unused-parameters")
def test_a_parameter_that_no_replica_used_has_no_gradient(front_end, topology):
    module, replicas = replicas_of(front_end, topology, "layers", 2)
    first_layers_only(replicas, topology).backward()
    unused = {name for name, each in module.parameters().items() if each.grad is None}
    assert unused == {"body.1.weight", "body.1.bias", "body.4.weight", "body.4.bias"}


@clause("cpp.replicate.used-by-some")
def test_a_parameter_that_one_replica_used_ends_backward(front_end, topology):
    _, replicas = replicas_of(front_end, topology, "layers", 2)
    loss = first_layers_only(replicas[:1], topology)
    with pytest.raises(RuntimeError, match="All inputs of ReduceAdd must have the same size"):
        loss.backward()


@clause("cpp.replicate.ties-come-apart")
def test_a_tied_weight_has_two_memories_in_a_replica(front_end, topology):
    module, (replica, _) = replicas_of(front_end, topology, "tied", 2)
    names = ("again", "first.weight")
    assert len({module.parameters()[name].data_ptr() for name in names}) == 1
    assert len({replica.parameters()[name].data_ptr() for name in names}) == 2


@clause("cpp.replicate.no-devices")
def test_no_devices_give_no_replicas(front_end, topology):
    assert front_end.replicate(front_end.Model("linear"), []) == []
