"""scatter_gather.scatter: what becomes of the containers, and of all that is no tensor."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.containers import EMPTY, OPAQUE, Container, NewObject, NoFields, Pair
from spec_tests.strategies.scatter_gather import SPLIT, scatter_calls
from spec_tests.strategies.tensors import device_slots


@clause("scatter_gather.scatter.lists-and-tuples")
@given(call=scatter_calls(kinds=("list", "tuple")))
def test_lists_stay_lists_and_tuples_tuples(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.scatter.named-tuples")
@given(call=scatter_calls(kinds=("Pair", "Typed")))
def test_named_tuples_keep_their_class(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.scatter.mappings")
@given(call=scatter_calls(kinds=("dict", "OrderedDict", "DictSubclass")))
def test_mappings_keep_class_keys_and_order(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.scatter.subclasses")
@given(call=scatter_calls(kinds=("ListSubclass", "TupleSubclass", "max")))
def test_subclasses_of_list_and_tuple_become_plain(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.scatter.subclasses")
@given(extents=st.lists(st.integers(0, 9), min_size=1), slots=device_slots())
def test_a_torch_size_becomes_a_tuple(target, topology, extents, slots):
    found = target.scatter_gather.scatter([torch.Size(extents)], topology.take(slots))
    checks.same([type(size) for [size] in found], [tuple] * len(slots), extents)


@clause("scatter_gather.scatter.parameters")
@given(rows=st.integers(0, 5), slots=device_slots())
def test_parameters_are_split_into_plain_tensors(target, topology, rows, slots):
    parameter = torch.nn.Parameter(torch.ones(rows, 2, device=topology.device(0)))
    found = target.scatter_gather.scatter([parameter], topology.take(slots))
    checks.same({type(chunk) for [chunk] in found}, {torch.Tensor}, rows)


@clause("scatter_gather.scatter.new-containers")
@given(kind=st.sampled_from(SPLIT), slots=device_slots(min_size=2))
def test_replicas_share_no_container(target, topology, kind, slots):
    inputs = Container(kind, (7, None)).build(topology)
    found = target.scatter_gather.scatter([inputs], topology.take(slots))
    different = {id(inputs), *(id(each) for [each] in found)}
    checks.same(len(different), len(slots) + 1, kind)


@clause("scatter_gather.scatter.others-by-reference")
@given(leaf=st.sampled_from([NewObject("Opaque()"), NewObject("{1, 2}")]), slots=device_slots())
def test_others_are_the_same_object_everywhere(target, topology, leaf, slots):
    value = leaf.build(topology)
    found = target.scatter_gather.scatter((value,), topology.take(slots))
    checks.same([each is value for (each,) in found], [True] * len(slots), leaf)


@clause("scatter_gather.scatter.empty-containers")
@given(leaf=st.sampled_from(EMPTY).map(NewObject), slots=device_slots())
def test_empty_containers_are_the_same_object_everywhere(target, topology, leaf, slots):
    value = leaf.build(topology)
    found = target.scatter_gather.scatter({"empty": value}, topology.take(slots))
    checks.same([each["empty"] is value for each in found], [True] * len(slots), leaf)


@clause("scatter_gather.scatter.sealed-containers")
@given(leaf=st.sampled_from(OPAQUE).map(NewObject), slots=device_slots())
def test_containers_of_other_kinds_are_handed_whole(target, topology, leaf, slots):
    value = leaf.build(topology)
    found = target.scatter_gather.scatter([value], topology.take(slots))
    checks.same([each is value for [each] in found], [True] * len(slots), leaf)


@clause("scatter_gather.scatter.numbers-are-not-split")
@given(numbers=st.lists(st.integers(), min_size=1), slots=device_slots())
def test_every_device_gets_the_whole_list_of_numbers(target, topology, numbers, slots):
    found = target.scatter_gather.scatter(numbers, topology.take(slots))
    checks.same(found, [numbers] * len(slots), numbers)


@clause("scatter_gather.is-namedtuple")
# torch.nn.parallel's own warns that it is deprecated, which makes its answer no less right.
@pytest.mark.filterwarnings("ignore:.is_namedtuple. is deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("value", "expected"),
    [(Pair(1, 2), True), (NoFields(), True), ((1, 2), False), (Pair, False), ([1], False)],
    ids=["named tuple", "without fields", "tuple", "class", "list"],
)
def test_named_tuples_are_told_from_other_tuples(target, value, expected):
    assert target.scatter_gather.is_namedtuple(value) is expected
