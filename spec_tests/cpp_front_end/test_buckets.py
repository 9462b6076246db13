"""``replicate(..., buffer_size=1)``: each gradient is summed on its own, as in C++."""

from functools import reduce

from hypothesis import given

from spec_tests.cpp_front_end.backward import (
    is_reduced_early,
    record_events_on_first_device,
    run_forward,
)
from spec_tests.cpp_front_end.modules import build_python_module
from spec_tests.cpp_front_end.systems import CppSystem, OneParameterBuckets, training_runs
from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause


def run_layers_of(replica):
    def run_layers(x, first, last):
        return reduce(lambda value, layer: layer(value), list(replica.body)[first:last], x)

    return run_layers


def forward_passes(replicas, topology):
    pairs = zip(replicas, topology.take(2), strict=True)
    return [run_forward(run_layers_of(replica), device) for replica, device in pairs]


@clause("systems.bucket-gradients")
@given(run=training_runs())
def test_one_parameter_buckets_give_the_gradients_of_cpp(front_end, target, topology, run):
    expected = run.gradients(CppSystem(front_end), topology)
    found = run.gradients(OneParameterBuckets(target), topology)
    checks.same(found, expected, run, tolerance=checks.LAYER)


@clause("systems.early-reduction")
def test_target_reduces_the_last_layer_before_backward_ends(target, topology):
    topology.require(distinct=2)
    module = build_python_module("layers", 0, topology.device(0))
    replicas = OneParameterBuckets(target).replicate(module, topology.take(2))
    first, second = forward_passes(replicas, topology)
    assert is_reduced_early(module.body[4].weight, first, second)


@clause("systems.early-reduction")
def test_target_reduces_the_last_layer_before_one_device_ends_backward(target, topology):
    topology.require(distinct=2)
    module = build_python_module("layers", 0, topology.device(0))
    replicas = OneParameterBuckets(target).replicate(module, topology.take(2))
    first, second = forward_passes(replicas, topology)
    events = record_events_on_first_device(module.body[4].weight, first, second)
    assert events == ["reduced", "end"]


@clause("systems.early-reduction")
def test_reference_reduces_after_all_gradients_are_computed(reference, topology):
    topology.require(distinct=2)
    module = build_python_module("layers", 0, topology.device(0))
    replicas = reference.replicate.replicate(module, topology.take(2))
    first, second = forward_passes(replicas, topology)
    assert not is_reduced_early(module.body[4].weight, first, second, timeout=0.5)
