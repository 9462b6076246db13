"""scatter and gather together: what one does the other undoes."""

from hypothesis import given

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.round_trips import round_trips


@clause("scatter_gather.gather-undoes-scatter.values")
@given(trip=round_trips())
def test_gathering_gives_back_what_was_scattered(target, topology, trip):
    sent, returned = trip.values(target, topology)
    checks.same(returned, sent, trip)


@clause("scatter_gather.gather-undoes-scatter.gradients")
@given(trip=round_trips())
def test_gradients_come_back_as_they_were_fed(target, topology, trip):
    fed, arrived = trip.gradients(target, topology)
    checks.same(arrived, fed, trip)
