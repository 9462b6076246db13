"""Outputs, gradients and training are equal in the C++ front end, the reference and the target.

With ``buffer_size=1`` each gradient is summed on its own, as in C++.
"""

from functools import reduce

from hypothesis import example, given

from spec_tests.cpp_front_end import backward
from spec_tests.cpp_front_end.modules import make_module
from spec_tests.cpp_front_end.systems import (
    TrainingRun,
    cpp_system,
    python_system,
    system_of_one_parameter_buckets,
    training_runs,
)
from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause


@clause("systems.outputs")
@given(run=training_runs())
@example(run=TrainingRun("scaled", rows=4, devices=2, seed=0))
def test_outputs_equal_those_of_cpp(front_end, target, baselines, topology, run):
    _check_same(run.outputs, run, front_end, (target, *baselines), topology)


@clause("systems.gradients")
@given(run=training_runs())
def test_gradients_equal_those_of_cpp(front_end, target, baselines, topology, run):
    _check_same(run.gradients, run, front_end, (target, *baselines), topology)


@clause("systems.training")
@given(run=training_runs())
def test_trained_parameters_equal_those_of_cpp(front_end, target, baselines, topology, run):
    _check_same(run.trained_parameters, run, front_end, (target, *baselines), topology)


def _check_same(compute, run, front_end, implementations, topology):
    """Fail unless a method of ``run`` returns the same for each implementation as for C++."""
    expected = compute(cpp_system(front_end), topology)
    for each in implementations:
        found = compute(python_system(each), topology)
        checks.same(found, expected, run, tolerance=checks.LAYER)


@clause("systems.bucket-gradients")
@given(run=training_runs())
def test_one_parameter_buckets_give_the_gradients_of_cpp(front_end, target, topology, run):
    expected = run.gradients(cpp_system(front_end), topology)
    found = run.gradients(system_of_one_parameter_buckets(target), topology)
    checks.same(found, expected, run, tolerance=checks.LAYER)


@clause("systems.early-reduction")
def test_target_reduces_the_last_layer_before_backward_ends(target, topology):
    assert backward.is_reduced_early(*_passes(target, topology, buffer_size=1))


@clause("systems.early-reduction")
def test_target_reduces_the_last_layer_before_one_device_ends_backward(target, topology):
    events = backward.events_on_first_device(*_passes(target, topology, buffer_size=1))
    assert events == ["reduced", "end"]


@clause("systems.early-reduction")
def test_reference_reduces_after_all_gradients_are_computed(reference, topology):
    assert not backward.is_reduced_early(*_passes(reference, topology), timeout=0.5)


def _passes(package, topology, **options):
    """Return the weight of the last layer, and the forward passes of two replicas."""
    topology.require(distinct=2)
    devices = topology.take(2)
    module = make_module("layers", 0, devices[0])
    replicas = package.replicate.replicate(module, devices, **options)
    pairs = zip(replicas, devices, strict=True)
    passes = [backward.run_forward(_run_layers_of(replica), device) for replica, device in pairs]
    return module.body[4].weight, *passes


def _run_layers_of(replica):
    def run_layers(x, first, last):
        return reduce(lambda value, layer: layer(value), list(replica.body)[first:last], x)

    return run_layers
