"""Specs of modules: equal specs build equal modules, and shared layers are one object."""

import torch
from hypothesis import given

from spec_tests import checks
from spec_tests.checks.replica_laws import named_tensors
from spec_tests.checks.snapshot import snapshot
from spec_tests.strategies.modules import (
    Layer,
    ModuleSpec,
    TiedLinear,
    module_specs,
    move,
    row_wise_specs,
)
from spec_tests.strategies.packed_sequences import packed_specs, unpack


@given(spec=module_specs())
def test_equal_specs_build_equal_modules(topology, spec):
    first, second = spec.build(topology), spec.build(topology)
    checks.same(snapshot(named_tensors(first), {}), snapshot(named_tensors(second), {}), spec)
    ids = [{*map(id, named_tensors(module).values())} for module in (first, second)]
    assert ids[0].isdisjoint(ids[1])


@given(spec=row_wise_specs())
def test_row_wise_module_computes_each_row_independently(topology, spec):
    module, rows = spec.build(topology), spec.rows(3).build(topology)
    by_row = torch.cat([module(row) for row in rows.split(1)])
    torch.testing.assert_close(module(rows), by_row, rtol=1e-3, atol=1e-3)


def test_tied_weights_stay_one_parameter_where_new_parameters_are_made(topology, monkeypatch):
    monkeypatch.setattr(
        torch.__future__, "get_overwrite_module_params_on_conversion", lambda: True
    )
    net = ModuleSpec((Layer("linear"), TiedLinear(0))).build(topology, None)
    weight = net[0].weight
    assert move(net, torch.device("cpu"))[0].weight is net[1].weight is not weight


@given(spec=packed_specs())
def test_packed_sequences_have_the_lengths_of_the_spec(topology, spec):
    packed = spec.build(topology)
    assert [len(sequence) for sequence in unpack(packed)] == list(spec.lengths)
    assert (packed.sorted_indices is None) == spec.is_sorted
