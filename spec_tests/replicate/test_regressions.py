"""Past defects of replicate, with version, symptom and cause."""

import io

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.oracle.replica_laws import flat_weights_are_shared
from spec_tests.strategies.computed_modules import computed
from spec_tests.strategies.layers import ListContainers, Recurrent


@clause("replicate.zoo.parameter-containers")
def test_a_parameter_list_of_a_replica_is_not_empty(target, topology):
    # PyTorch 1.5: ParameterList and ParameterDict were empty in replicas (#36035, #42327).
    module = ListContainers().to(topology.device(0))
    for replica in target.replicate.replicate(module, topology.take(2)):
        checks.same(([len(replica.scales), len(list(replica.scales))]), [2, 2])


@clause("replicate.zoo.flat-weights")
def test_replicate_keeps_the_flattened_weights_of_the_module(target, topology):
    # PyTorch 1.4: replicate overwrote the module's own list of flattened weights (#33552).
    module = Recurrent(nn.LSTM(4, 4)).to(topology.device(0))
    before = list(module.layer._flat_weights)
    replicas = target.replicate.replicate(module, topology.take(2))
    checks.same([*map(id, module.layer._flat_weights)], [*map(id, before)])
    checks.same([flat_weights_are_shared(replica) for replica in replicas], [[True] * 4] * 2)


@clause("replicate.saved")
@pytest.mark.parametrize("detach", [False, True], ids="detach={}".format)
def test_a_replica_can_be_saved(target, topology, detach):
    # PyTorch 1.5: torch.save failed, because replicas have plain tensors as parameters (#37182).
    module = nn.Linear(2, 2).to(topology.device(0))
    for replica in target.replicate.replicate(module, topology.take(2), detach):
        file = io.BytesIO()
        torch.save(replica, file)
        file.seek(0)
        checks.same(torch.load(file, weights_only=False).weight.tolist(), module.weight.tolist())


@clause("replicate.own-entries")
def test_the_first_replica_is_not_the_module_itself(target, topology):
    # PyTorch 0.4: the first replica was the module itself, so that attributes that forward set
    # stayed on the module (#11476).
    module = nn.BatchNorm1d(2).to(topology.device(0))
    first, second = target.replicate.replicate(module, topology.take(2))
    first.note = 1
    checks.same((hasattr(module, "note"), hasattr(second, "note")), (False, False))


@clause("replicate.buffers.updates-of-the-first-last")
def test_statistics_of_the_first_replica_reach_the_module(target, topology):
    # The fix of #11476 must keep the statistics of the first replica (#12671, #13350).
    computed(["batch_norm"])
    module = nn.BatchNorm1d(2).to(topology.device(0))
    first, _ = target.replicate.replicate(module, topology.take(2))
    first(torch.ones(3, 2, device=topology.device(0)))
    checks.same(module.num_batches_tracked.item(), 1)
    assert module.running_mean.tolist() == pytest.approx([0.1, 0.1])


@clause("replicate.zoo.parametrized")
def test_the_sources_of_a_normalised_weight_get_gradients(target, topology):
    # PyTorch 0.2: a weight computed from other parameters did not work in replicas (#2720).
    linear = nn.Linear(2, 1)
    nn.init.ones_(linear.weight)  # Not parallel to x: the gradient of the direction would be 0.
    module = parametrizations.weight_norm(linear).to(topology.device(0))
    devices = topology.take(2)
    replicas = target.replicate.replicate(module, devices)
    x = torch.tensor([[1.0, -2.0]])
    outputs = [r(x.to(d)).cpu() for r, d in zip(replicas, devices, strict=True)]
    originals = list(module.parametrizations.weight.parameters())
    gradients = torch.autograd.grad(sum(outputs).sum(), originals)
    assert len(gradients) == 2
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


@clause("replicate.parameters.frozen")
def test_frozen_parameters_stay_frozen_in_replicas(target, topology):
    # PyTorch 0.3: every output of Broadcast required a gradient if one input did (#5041).
    module = nn.Linear(2, 2).to(topology.device(0))
    module.bias.requires_grad_(False)
    replicas = target.replicate.replicate(module, topology.take(2))
    checks.same(
        [(r.weight.requires_grad, r.bias.requires_grad) for r in replicas], [(True, False)] * 2
    )


@clause("replicate.parameters.complex")
def test_complex_parameters_have_no_extra_dimension(target, topology):
    # Up to PyTorch 2.10 complex copies were real views with a last dimension of 2 (#135462).
    module = nn.ParameterList([torch.ones(3, dtype=torch.complex64)]).to(topology.device(0))
    replicas = target.replicate.replicate(module, topology.take(2))
    found = [(replica[0].dtype, tuple(replica[0].shape)) for replica in replicas]
    checks.same(found, [(torch.complex64, (3,))] * 2)


@clause("replicate.parameters.versions")
def test_a_buffer_may_change_while_another_is_saved_for_backward(target, topology):
    # PyTorch 0.4: tensors of one broadcast shared a version counter, so backward failed (#13594).
    module = nn.BatchNorm1d(2, affine=False).to(topology.device(0))
    _, replica = target.replicate.replicate(module, topology.take(2))
    leaf = torch.ones(2, device=replica.running_mean.device, requires_grad=True)
    loss = (leaf * replica.running_var).sum()
    replica.running_mean.add_(1)
    loss.backward()
    checks.same(leaf.grad.tolist(), [1.0, 1.0])


@clause("replicate.zero-grad")
def test_zero_grad_of_a_replica_does_not_fail_silently(target, topology):
    # PyTorch 1.3: zero_grad silently did nothing, and gradients exploded (#31768).
    module = nn.Linear(2, 2).to(topology.device(0))
    [replica] = target.replicate.replicate(module, topology.take(1))
    with pytest.warns(UserWarning, match="has no effect"):
        replica.zero_grad()
