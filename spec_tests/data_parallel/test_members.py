"""data_parallel and DataParallel: changed members, references to modules, and hooks."""

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.checks import wrapper_laws as laws
from spec_tests.machine.clauses import clause
from spec_tests.strategies.calls import DeviceAt, distinct_devices
from spec_tests.strategies.changed_members import (
    REGISTRATIONS,
    REPLACEMENTS,
    ChangesMembersSpec,
    changes_members_calls,
)
from spec_tests.strategies.data_parallel import DataParallelCall
from spec_tests.strategies.modules import Layer, ModuleSpec
from spec_tests.strategies.references import referring_specs

NETWORK = ModuleSpec((Layer("linear"),))


def call_of(*changes):
    module = ChangesMembersSpec(NETWORK, "empty", 0, changes)
    return DataParallelCall(module, (NETWORK.rows(3),), devices=[DeviceAt(0), DeviceAt(1)])


@clause("data_parallel.members.replaced")
@example(call=call_of("double"))
@example(call=call_of("set_none", "delete"))
@given(call=changes_members_calls([*REPLACEMENTS]))
def test_a_forward_replaces_parameters_of_a_submodule(target, topology, call):
    found, expected = laws.run_wrapped_and_plain(
        call, target, topology, grad=call.grad, unused_as_zeros=True
    )
    checks.same(found, expected, call, tolerance=checks.LAYER)


@clause("data_parallel.members.registered")
@example(call=call_of("register"))
@given(call=changes_members_calls([*REGISTRATIONS]))
def test_a_forward_registers_parameters_of_a_submodule(target, topology, call):
    found, expected = laws.run_wrapped_and_plain(call, target, topology, grad=call.grad)
    checks.same(found, expected, call, tolerance=checks.LAYER)


def check_plain_variant(target, topology, spec, devices, rows, grad):
    placed = devices.build(topology)
    counts = [each * len(placed) for each in rows]
    batches = [spec.network.rows(count).build(topology).to(placed[0]) for count in counts]
    with torch.set_grad_enabled(grad):
        found, expected = (
            laws.results_of(
                spec.build(topology, plain=plain).to(placed[0]),
                lambda module: target.data_parallel.DataParallel(module, placed),
                batches,
            )
            for plain in (False, True)
        )
    checks.same(found, expected, (spec, placed, rows, grad), tolerance=checks.LAYER)


#: For each batch: the rows of a replica. Batch norm needs two.
ROWS = st.lists(st.integers(2, 3), min_size=1, max_size=2)


@clause("data_parallel.members.references")
@given(
    spec=referring_specs(hooks=False), devices=distinct_devices(), rows=ROWS, grad=st.booleans()
)
def test_references_to_submodules_are_those_of_the_replica(
    target, topology, spec, devices, rows, grad
):
    topology.require(distinct=2)
    check_plain_variant(target, topology, spec, devices, rows, grad)


@clause("data_parallel.members.hooks")
@given(spec=referring_specs(hooks=True), devices=distinct_devices(), rows=ROWS, grad=st.booleans())
def test_hooks_that_are_methods_run_on_the_replica(target, topology, spec, devices, rows, grad):
    check_plain_variant(target, topology, spec, devices, rows, grad)
