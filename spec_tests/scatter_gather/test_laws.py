"""scatter_gather: gather is the inverse of scatter."""

from hypothesis import example, given

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.round_trips import RoundTrip, round_trips
from spec_tests.strategies.tensors import TensorSpec


@clause("scatter_gather.gather-undoes-scatter.values")
@given(trip=round_trips())
def test_gather_restores_scattered_values(target, topology, trip):
    scattered, gathered = trip.values(target, topology)
    checks.same(gathered, scattered, trip)


@clause("scatter_gather.gather-undoes-scatter.gradients")
@given(trip=round_trips())
@example(trip=RoundTrip(TensorSpec((4, 2), requires_grad=True), (0, 1), 0))
def test_scatter_and_gather_pass_gradients_on_unchanged(target, topology, trip):
    output_gradients, input_gradients = trip.gradients(target, topology)
    checks.same(input_gradients, output_gradients, trip)
