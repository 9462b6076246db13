"""replicate: lifetimes of replicas."""

from hypothesis import given
from hypothesis import strategies as st

from spec_tests.checks.leaks import check_none_kept, leaked_objects
from spec_tests.machine.clauses import clause
from spec_tests.strategies.calls import DistinctDevices, KeywordCall
from spec_tests.strategies.modules import PICKLABLE, module_specs
from spec_tests.strategies.replicate import slot_lists


@clause("replicate.leaves-nothing")
@given(spec=module_specs(kinds=PICKLABLE), slots=slot_lists(), detach=st.booleans())
def test_replicas_are_freed_without_garbage_collection(target, topology, spec, slots, detach):
    arguments = {"network": spec, "devices": DistinctDevices((0, *slots)), "detach": detach}
    call = KeywordCall("replicate.replicate", arguments)
    check_none_kept(leaked_objects(call, target, topology), call)
