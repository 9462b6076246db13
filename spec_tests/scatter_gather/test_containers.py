"""Containers that the reference loses or refuses: SG-8, SG-10 and SG-11."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.conformance.clauses import clause
from spec_tests.scatter_gather.containers import (
    as_dicts,
    build_tensors,
    get_member_classes,
    get_metadata,
)
from spec_tests.strategies.containers import NoFields, Pair
from spec_tests.strategies.stateful_containers import (
    MAPPINGS,
    Batch,
    Frozen,
    batches,
    config,
    counter,
    default_dict,
    named_table,
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
        [get_member_classes(result) for result, _ in found],
        [get_member_classes(batch)] * len(found),
        spec,
    )


@DATACLASSES_CLAUSE
@given(slots=device_slots())
def test_reference_passes_the_same_dataclass_to_every_replica(reference, topology, slots):
    batch = build_tensors(Batch(ROWS), topology)
    found = reference.scatter_gather.scatter([batch], topology.take(slots))
    checks.same([result is batch for [result] in found], [True] * len(slots))


@JOINED_DATACLASSES_CLAUSE
@given(spec=batches(PARTS), slots=device_slots())
@example(spec=Batch(ROWS), slots=(0, 1))
def test_the_fields_of_dataclasses_are_joined(target, topology, spec, slots):
    batch = build_tensors(spec, topology)
    replicas = target.scatter_gather.scatter([batch, ROWS.build(topology)], topology.take(slots))
    found = target.scatter_gather.gather([replica for replica, _ in replicas], topology.device(0))
    checks.same(snapshot(found, {}), snapshot(batch, {}), spec)


@JOINED_DATACLASSES_CLAUSE
@given(slots=device_slots())
def test_reference_cannot_join_dataclasses(reference, topology, slots):
    outputs = [Batch(torch.ones(1, device=device)) for device in topology.take(slots)]
    with pytest.raises(TypeError, match="'Batch' object is not iterable"):
        reference.scatter_gather.gather(outputs, topology.device(0))


@EMPTY_CLAUSE
@given(rows=st.integers(0, 5), slots=device_slots())
def test_an_empty_named_tuple_is_passed_to_every_replica(target, topology, rows, slots):
    tensor = torch.arange(rows).to(topology.device(0))
    arguments = Pair(tensor, {"nothing": NoFields()})
    chunks = target.scatter_gather.scatter([tensor], topology.take(slots))
    found = target.scatter_gather.scatter(arguments, topology.take(slots))
    checks.same([result.first for result in found], [{"nothing": NoFields()}] * len(chunks), slots)


@EMPTY_CLAUSE
@given(slots=device_slots())
def test_reference_returns_no_chunks_for_an_empty_named_tuple(reference, topology, slots):
    tensor = torch.arange(4).to(topology.device(0))
    checks.same(reference.scatter_gather.scatter((tensor, NoFields()), topology.take(slots)), [])


@SCATTERED_MAPPINGS_CLAUSE
@EVERY_MAPPING
@given(slots=device_slots())
def test_a_scattered_mapping_keeps_its_class_order_and_attributes(target, topology, kind, slots):
    tensor = torch.arange(len(slots)).to(topology.device(0))
    mapping = kind(b=tensor, a=3)
    found = target.scatter_gather.scatter([mapping], topology.take(slots))
    checks.same([get_metadata(result) for [result] in found], [get_metadata(mapping)] * len(slots))
    members = [(list(result), result["b"].tolist(), result["a"]) for [result] in found]
    checks.same(members, [(["b", "a"], [index], 3) for index in range(len(slots))], slots)


@SCATTERED_MAPPINGS_CLAUSE
@pytest.mark.parametrize("kind", [config, named_table], ids="{0.__name__}".format)
@given(slots=device_slots())
def test_reference_loses_attributes_of_a_mapping(reference, topology, kind, slots):
    mapping = kind(b=torch.arange(len(slots)).to(topology.device(0)), a=3)
    found = reference.scatter_gather.scatter([mapping], topology.take(slots))
    assert get_metadata(mapping) not in [get_metadata(result) for [result] in found]


@SCATTERED_MAPPINGS_CLAUSE
@given(slots=device_slots())
def test_reference_counts_the_entries_of_a_counter(reference, topology, slots):
    found = reference.scatter_gather.scatter([counter(b=2, a=3)], topology.take(slots))
    checks.same(found, [[{("b", 2): 1, ("a", 3): 1}]] * len(slots), slots)


@SCATTERED_MAPPINGS_CLAUSE
@given(slots=device_slots())
def test_reference_cannot_rebuild_a_default_dict(reference, topology, slots):
    outputs = [default_dict(b=torch.ones(1, device=device)) for device in topology.take(slots)]
    with pytest.raises(TypeError, match="first argument must be callable or None"):
        reference.scatter_gather.scatter(outputs[0], topology.take(slots))
    with pytest.raises(TypeError, match="first argument must be callable or None"):
        reference.scatter_gather.gather(outputs, topology.device(0))


@JOINED_MAPPINGS_CLAUSE
@EVERY_MAPPING
@given(slots=device_slots())
def test_a_gathered_mapping_keeps_its_class_order_and_attributes(target, topology, kind, slots):
    outputs = [kind(b=torch.ones(1, device=device), a=None) for device in topology.take(slots)]
    found = target.scatter_gather.gather(outputs, topology.device(0))
    checks.same(get_metadata(found), get_metadata(outputs[0]), slots)
    checks.same([*found, len(found["b"]), found["a"]], ["b", "a", len(slots), None], slots)
