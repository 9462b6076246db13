"""Dataclasses, which the reference neither splits nor joins: SG-8."""

from dataclasses import fields, is_dataclass

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.checks.nested_values import walk
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine.clauses import clause
from spec_tests.strategies.stateful_containers import Batch, Frozen, batches
from spec_tests.strategies.tensors import TensorSpec, device_slots

ROWS = TensorSpec((4, 2), requires_grad=True)
PARTS = st.sampled_from([ROWS, TensorSpec((4,), torch.int64), None])


def build_tensors(value, topology):
    """Return ``value`` with a tensor for each TensorSpec. ``seen`` of a Batch becomes its rows."""
    if isinstance(value, TensorSpec):
        return value.build(topology)
    if isinstance(value, list):
        return [build_tensors(member, topology) for member in value]
    if not is_dataclass(value):
        return value
    names = [field.name for field in fields(value) if field.init]
    built = type(value)(**{name: build_tensors(getattr(value, name), topology) for name in names})
    if isinstance(built, Batch):
        built.seen = built.rows
    return built


def as_dicts(value):
    """Return ``value`` with each dataclass replaced by a dict of its fields."""
    if isinstance(value, list):
        return [as_dicts(member) for member in value]
    if not is_dataclass(value):
        return value
    names = [field.name for field in fields(value) if hasattr(value, field.name)]
    return {name: as_dicts(getattr(value, name)) for name in names}


def member_classes(value):
    return [type(member) for _, member in walk(value, "")]


@clause("divergences.SG-8.dataclasses-are-split")
@given(spec=batches(PARTS), slots=device_slots())
@example(spec=Batch(ROWS), slots=(0, 1))
@example(spec=Frozen(ROWS, [Batch(ROWS)]), slots=(0, 1))
def test_the_fields_of_a_dataclass_are_split(target, oracle, topology, spec, slots):
    batch, devices = build_tensors(spec, topology), topology.take(slots)
    found = target.scatter_gather.scatter([batch, None], devices)
    expected = oracle.scatter_gather.scatter([as_dicts(batch), None], devices)
    checks.same(snapshot(as_dicts(found), {}), snapshot(expected, {}), spec)
    checks.same(
        [member_classes(result) for result, _ in found], [member_classes(batch)] * len(found), spec
    )


@clause("divergences.SG-8.dataclasses-are-joined")
@given(spec=batches(PARTS), slots=device_slots())
@example(spec=Batch(ROWS), slots=(0, 1))
def test_the_fields_of_dataclasses_are_joined(target, topology, spec, slots):
    batch = build_tensors(spec, topology)
    replicas = target.scatter_gather.scatter([batch, ROWS.build(topology)], topology.take(slots))
    found = target.scatter_gather.gather([replica for replica, _ in replicas], topology.device(0))
    checks.same(snapshot(found, {}), snapshot(batch, {}), spec)
