"""Reducing each parameter by itself, as C++ does, with ``replicate(..., buffer_size=1)``."""

import torch
from hypothesis import given

from spec_tests import checks
from spec_tests.clauses import clause
from spec_tests.cpp_front_end.backward import reduced_early
from spec_tests.cpp_front_end.modules import python_twin
from spec_tests.cpp_front_end.systems import BucketEach, Cpp, runs


def loss_of(replicas, topology):
    inputs = [torch.randn(2, 2, 4, 4, device=device) for device in topology.take(2)]
    outputs = [replica(each) for replica, each in zip(replicas, inputs, strict=True)]
    return sum(output.square().sum().cpu() for output in outputs)


@clause("cpp.buckets.gradients")
@given(run=runs())
def test_a_bucket_a_parameter_gives_the_gradients_of_cpp(front_end, target, topology, run):
    expected = run.gradients(Cpp(front_end), topology)
    checks.same(run.gradients(BucketEach(target), topology), expected, run, tolerance=checks.LAYER)


@clause("cpp.buckets.early-reduction")
def test_the_last_layer_is_reduced_before_the_first_has_all_gradients(target, topology):
    topology.require(distinct=2)
    module = python_twin("layers", 0, topology.device(0))
    replicas = BucketEach(target).replicas(module, topology.take(2))
    early = reduced_early(module.body[4].weight, replicas[1].body[0].weight)
    loss_of(replicas, topology).backward()
    assert early == [True]


@clause("cpp.buckets.reference-waits")
def test_the_reference_reduces_once_it_has_every_gradient(reference, topology):
    topology.require(distinct=2)
    module = python_twin("layers", 0, topology.device(0))
    replicas = reference.replicate.replicate(module, topology.take(2))
    early = reduced_early(module.body[4].weight, replicas[1].body[0].weight, patience=0.5)
    loss_of(replicas, topology).backward()
    assert early == [False]
