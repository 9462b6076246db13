"""comm.scatter: splitting one tensor over devices."""

from hypothesis import given

from spec_tests import checks
from spec_tests.clauses import clause
from spec_tests.strategies.comm import scatter_calls


@clause("comm.scatter.slices")
@given(call=scatter_calls())
def test_chunks_are_consecutive_slices(target, reference, topology, call):
    checks.agree(call, target, reference, topology)
