"""Containers that the reference loses or refuses: SG-8, SG-10 and SG-11."""

from dataclasses import fields, is_dataclass

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.traverse import walk
from spec_tests.strategies.containers import NoFields, Pair
from spec_tests.strategies.stateful_containers import (
    MAPPINGS,
    Batch,
    Frozen,
    batches,
)
from spec_tests.strategies.tensors import TensorSpec, device_slots

ROWS = TensorSpec((4, 2), requires_grad=True)
PARTS = st.sampled_from([ROWS, TensorSpec((4,), torch.int64), None])

DATACLASSES_CLAUSE = clause("divergences.SG-8.dataclasses-are-split")
JOINED_DATACLASSES_CLAUSE = clause("divergences.SG-8.dataclasses-are-joined")
EMPTY_CLAUSE = clause("divergences.SG-10.empty-named-tuples-are-carried")
SCATTERED_MAPPINGS_CLAUSE = clause("divergences.SG-11.mappings-keep-all-they-hold")
JOINED_MAPPINGS_CLAUSE = clause("divergences.SG-11.joined-mappings-keep-all-they-hold")
EVERY_MAPPING = pytest.mark.parametrize("kind", MAPPINGS, ids="{0.__name__}".format)


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


def metadata(mapping):
    """Return the class, the default factory and the attributes of a mapping."""
    attributes = getattr(mapping, "__dict__", {})
    return type(mapping), getattr(mapping, "default_factory", None), dict(attributes)


@DATACLASSES_CLAUSE
@given(spec=batches(PARTS), slots=device_slots())
@example(spec=Batch(ROWS), slots=(0, 1))
@example(spec=Frozen(ROWS, [Batch(ROWS)]), slots=(0, 1))
def test_the_fields_of_a_dataclass_are_split(target, oracle, topology, spec, slots):
    batch, devices = build_tensors(spec, topology), topology.take(slots)
    found = target.scatter_gather.scatter([batch, None], devices)
    expected = oracle.scatter_gather.scatter([as_dicts(batch), None], devices)
    checks.same(snapshot(as_dicts(found), {}), snapshot(expected, {}), spec)
    checks.same(
        [member_classes(result) for result, _ in found],
        [member_classes(batch)] * len(found),
        spec,
    )


@JOINED_DATACLASSES_CLAUSE
@given(spec=batches(PARTS), slots=device_slots())
@example(spec=Batch(ROWS), slots=(0, 1))
def test_the_fields_of_dataclasses_are_joined(target, topology, spec, slots):
    batch = build_tensors(spec, topology)
    replicas = target.scatter_gather.scatter([batch, ROWS.build(topology)], topology.take(slots))
    found = target.scatter_gather.gather([replica for replica, _ in replicas], topology.device(0))
    checks.same(snapshot(found, {}), snapshot(batch, {}), spec)


@EMPTY_CLAUSE
@given(rows=st.integers(0, 5), slots=device_slots())
def test_an_empty_named_tuple_is_passed_to_every_replica(target, topology, rows, slots):
    tensor = torch.arange(rows).to(topology.device(0))
    arguments = Pair(tensor, {"nothing": NoFields()})
    chunks = target.scatter_gather.scatter([tensor], topology.take(slots))
    found = target.scatter_gather.scatter(arguments, topology.take(slots))
    checks.same([result.first for result in found], [{"nothing": NoFields()}] * len(chunks), slots)


@SCATTERED_MAPPINGS_CLAUSE
@EVERY_MAPPING
@given(slots=device_slots())
def test_a_scattered_mapping_keeps_its_class_order_and_attributes(target, topology, kind, slots):
    tensor = torch.arange(len(slots)).to(topology.device(0))
    mapping = kind(b=tensor, a=3)
    found = target.scatter_gather.scatter([mapping], topology.take(slots))
    checks.same([metadata(result) for [result] in found], [metadata(mapping)] * len(slots))
    members = [(list(result), result["b"].tolist(), result["a"]) for [result] in found]
    checks.same(members, [(["b", "a"], [index], 3) for index in range(len(slots))], slots)


@JOINED_MAPPINGS_CLAUSE
@EVERY_MAPPING
@given(slots=device_slots())
def test_a_gathered_mapping_keeps_its_class_order_and_attributes(target, topology, kind, slots):
    outputs = [kind(b=torch.ones(1, device=device), a=None) for device in topology.take(slots)]
    found = target.scatter_gather.gather(outputs, topology.device(0))
    checks.same(metadata(found), metadata(outputs[0]), slots)
    checks.same([*found, len(found["b"]), found["a"]], ["b", "a", len(slots), None], slots)
