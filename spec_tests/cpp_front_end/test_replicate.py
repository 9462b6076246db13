"""C++ replicate: one deep clone per device, and one reduction node per parameter.

The tests check the C++ front end, not the target or the reference.
"""

import pytest
import torch

from spec_tests.cpp_front_end.backward import is_reduced_early, run_forward
from spec_tests.cpp_front_end.modules import KINDS, build_cpp_module, named_cpp_tensors
from spec_tests.harness.conformance.clauses import clause

NODE = "ReduceAdd"


def replicate(front_end, topology, kind, count):
    module = build_cpp_module(front_end, kind, 0, topology.device(0))
    return module, front_end.replicate(module, topology.take(count))


def random_batch(kind, device, rows=4):
    return torch.randn(rows, *KINDS[kind][1]).to(device)


def loss_of(front_end, replicas, topology, kind):
    inputs = [random_batch(kind, topology.device(slot)) for slot in range(len(replicas))]
    outputs = front_end.parallel_apply(replicas, inputs, None)
    return sum(output.square().sum().cpu() for output in outputs)


@clause("cpp.replicate.clones")
@pytest.mark.parametrize("kind", KINDS)
def test_replicas_share_no_memory(front_end, topology, kind):
    module, replicas = replicate(front_end, topology, kind, 3)
    pointers = [
        {tensor.data_ptr() for tensor in named_cpp_tensors(model).values()}
        for model in (module, *replicas)
    ]
    assert len(set.union(*pointers)) == sum(map(len, pointers))


@clause("cpp.replicate.clones")
@pytest.mark.parametrize("kind", KINDS)
def test_replicas_have_equal_tensors_on_their_devices(front_end, topology, kind):
    module, replicas = replicate(front_end, topology, kind, 3)
    expected = named_cpp_tensors(module)
    for device, replica in zip(topology.take(3), replicas, strict=True):
        found = named_cpp_tensors(replica)
        assert {tensor.device for tensor in found.values()} == {device}
        assert all(torch.equal(found[name].cpu(), expected[name].cpu()) for name in expected)


@clause("cpp.replicate.buffers-are-lost")
def test_replicas_do_not_update_buffers_of_the_module(front_end, topology):
    module, replicas = replicate(front_end, topology, "batch_norm", 2)
    loss_of(front_end, replicas, topology, "batch_norm")
    models = (module, *replicas)
    counts = [model.buffers()["body.0.num_batches_tracked"].item() for model in models]
    assert counts == [0, 1, 1]


@clause("cpp.replicate.one-node-a-parameter")
@pytest.mark.parametrize("kind", ["linear", "layers", "scaled"])
def test_each_tensor_has_one_reduction_node(front_end, topology, kind):
    _, replicas = replicate(front_end, topology, kind, 3)
    nodes = [
        {
            n: tensor.grad_fn
            for n, tensor in named_cpp_tensors(replica).items()
            if tensor.requires_grad
        }
        for replica in replicas
    ]
    assert all(NODE in node.name() for named in nodes for node in named.values())
    # Python objects do not identify C++ nodes. Sequence numbers do: they are unique in a thread.
    numbers = [{name: node._sequence_nr() for name, node in named.items()} for named in nodes]
    assert numbers[0] == numbers[1] == numbers[2]
    assert len(set(numbers[0].values())) == len(numbers[0])


@clause("cpp.replicate.early-reduction")
def test_cpp_reduces_the_last_layer_before_backward_ends(front_end, topology):
    topology.require(distinct=2)
    module, replicas = replicate(front_end, topology, "layers", 2)
    pairs = zip(replicas, topology.take(2), strict=True)
    first, second = [run_forward(replica.run_layers, device) for replica, device in pairs]
    assert is_reduced_early(module.parameters()["body.4.weight"], first, second)


@clause("cpp.replicate.no-double-backward")
@pytest.mark.parametrize("count", [1, 2], ids="devices={}".format)
def test_cpp_double_backward_is_refused(front_end, topology, count):
    module, replicas = replicate(front_end, topology, "linear", count)
    loss = loss_of(front_end, replicas, topology, "linear")
    text = "ReduceAdd can only be used during the backward pass of data parallel."
    with pytest.raises(RuntimeError) as caught:
        torch.autograd.grad(loss, list(module.parameters().values()), create_graph=True)
    assert text in str(caught.value)


def loss_of_first_layer(replicas, topology):
    pairs = zip(replicas, topology.take(len(replicas)), strict=True)
    return sum(
        replica.run_layers(random_batch("layers", device), 0, 1).sum().cpu()
        for replica, device in pairs
    )


@clause("cpp.replicate.unused-parameters")
def test_parameter_that_no_replica_uses_gets_no_gradient(front_end, topology):
    module, replicas = replicate(front_end, topology, "layers", 2)
    loss_of_first_layer(replicas, topology).backward()
    parameters = module.parameters().items()
    unused = {name for name, parameter in parameters if parameter.grad is None}
    assert unused == {"body.1.weight", "body.1.bias", "body.4.weight", "body.4.bias"}


@clause("cpp.replicate.used-by-some")
def test_parameter_that_only_one_replica_uses_raises_in_backward(front_end, topology):
    _, replicas = replicate(front_end, topology, "layers", 2)
    loss = loss_of_first_layer(replicas[:1], topology)
    with pytest.raises(RuntimeError, match="All inputs of ReduceAdd must have the same size"):
        loss.backward()


@clause("cpp.replicate.ties-come-apart")
def test_tied_weight_is_two_tensors_in_a_replica(front_end, topology):
    module, (replica, _) = replicate(front_end, topology, "tied", 2)
    names = ("again", "first.weight")
    assert len({module.parameters()[name].data_ptr() for name in names}) == 1
    assert len({replica.parameters()[name].data_ptr() for name in names}) == 2


@clause("cpp.replicate.no-devices")
def test_empty_device_list_returns_no_replicas(front_end, topology):
    assert front_end.replicate(front_end.Model("linear"), []) == []
