"""Reducing each parameter by itself, as C++ does, with ``replicate(..., buffer_size=1)``."""

from functools import reduce

from hypothesis import given

from spec_tests.cpp_front_end.backward import forward, is_reduced_early, order_at_home
from spec_tests.cpp_front_end.modules import python_twin
from spec_tests.cpp_front_end.systems import BucketEach, Cpp, runs
from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause


def part_of(replica):
    def part(x, first, last):
        return reduce(lambda value, layer: layer(value), list(replica.body)[first:last], x)

    return part


def forwards(replicas, topology):
    pairs = zip(replicas, topology.take(2), strict=True)
    return [forward(part_of(replica), device) for replica, device in pairs]


@clause("systems.bucket-gradients")
@given(run=runs())
def test_a_bucket_a_parameter_gives_the_gradients_of_cpp(front_end, target, topology, run):
    expected = run.gradients(Cpp(front_end), topology)
    checks.same(run.gradients(BucketEach(target), topology), expected, run, tolerance=checks.LAYER)


@clause("systems.early-reduction")
def test_the_last_layer_is_reduced_while_backward_is_held_in_the_middle(target, topology):
    topology.require(distinct=2)
    module = python_twin("layers", 0, topology.device(0))
    home, away = forwards(BucketEach(target).replicas(module, topology.take(2)), topology)
    assert is_reduced_early(module.body[4].weight, home, away)


@clause("systems.early-reduction")
def test_a_sum_that_can_be_made_is_made_before_backward_goes_on(target, topology):
    topology.require(distinct=2)
    module = python_twin("layers", 0, topology.device(0))
    home, away = forwards(BucketEach(target).replicas(module, topology.take(2)), topology)
    assert order_at_home(module.body[4].weight, home, away) == ["reduced", "end"]


@clause("systems.early-reduction")
def test_the_reference_reduces_once_it_has_every_gradient(reference, topology):
    topology.require(distinct=2)
    module = python_twin("layers", 0, topology.device(0))
    replicas = reference.replicate.replicate(module, topology.take(2))
    home, away = forwards(replicas, topology)
    assert not is_reduced_early(module.body[4].weight, home, away, patience=0.5)
