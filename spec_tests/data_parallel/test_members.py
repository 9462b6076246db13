"""data_parallel and DataParallel: modules whose forward changes their members."""

from hypothesis import example, given

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.oracle import wrapped_module
from spec_tests.strategies.calls import DeviceAt
from spec_tests.strategies.changed_members import (
    REGISTRATIONS,
    REPLACEMENTS,
    ChangesMembersSpec,
    changes_members_calls,
)
from spec_tests.strategies.data_parallel import DataParallelCall
from spec_tests.strategies.modules import Layer, ModuleSpec

NETWORK = ModuleSpec((Layer("linear"),))


def call_of(*changes):
    module = ChangesMembersSpec(NETWORK, "identity", 0, changes)
    return DataParallelCall(module, (NETWORK.rows(3),), devices=[DeviceAt(0), DeviceAt(1)])


@clause("data_parallel.members.replaced")
@example(call=call_of("double"))
@example(call=call_of("set_none", "delete"))
@given(call=changes_members_calls([*REPLACEMENTS]))
def test_a_forward_replaces_parameters_of_a_submodule(target, topology, call):
    found, expected = wrapped_module.run_wrapped_and_plain(
        call, target, topology, grad=call.grad, unused_as_zeros=True
    )
    checks.same(found, expected, call, tolerance=checks.LAYER)


@clause("data_parallel.members.registered")
@example(call=call_of("register"))
@given(call=changes_members_calls([*REGISTRATIONS]))
def test_a_forward_registers_parameters_of_a_submodule(target, topology, call):
    found, expected = wrapped_module.run_wrapped_and_plain(call, target, topology, grad=call.grad)
    checks.same(found, expected, call, tolerance=checks.LAYER)
