"""scatter_gather.scatter: containers, and values other than tensors."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.machine.clauses import cases, clause
from spec_tests.strategies.containers import EMPTY, OPAQUE, Container, NewObject, NoFields, Pair
from spec_tests.strategies.scatter_gather import SPLIT, scatter_calls
from spec_tests.strategies.tensors import device_slots


class WithFields(tuple):
    """A tuple with ``_fields`` but without ``_asdict``."""

    _fields = ()


@clause("scatter_gather.scatter.lists-and-tuples")
@given(call=scatter_calls(kinds=("list", "tuple")))
def test_scattered_lists_and_tuples_keep_their_class(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("scatter_gather.scatter.named-tuples")
@given(call=scatter_calls(kinds=("Pair", "Typed")))
def test_scattered_named_tuples_keep_their_class(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("divergences.SG-10.empty-named-tuples-are-carried")
@given(rows=st.integers(0, 5), slots=device_slots())
def test_an_empty_named_tuple_is_passed_to_every_replica(target, topology, rows, slots):
    tensor = torch.arange(rows).to(topology.device(0))
    arguments = Pair(tensor, {"nothing": NoFields()})
    chunks = target.scatter_gather.scatter([tensor], topology.take(slots))
    found = target.scatter_gather.scatter(arguments, topology.take(slots))
    checks.same([result.first for result in found], [{"nothing": NoFields()}] * len(chunks), slots)


@clause("scatter_gather.scatter.mappings")
@clause("scatter_gather.scatter.inputs-unchanged")
@given(call=scatter_calls(kinds=("dict", "OrderedDict", "DictSubclass")))
def test_scattered_mappings_keep_class_keys_and_order(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("scatter_gather.scatter.parameters")
@given(rows=st.integers(0, 5), slots=device_slots())
def test_parameters_are_split_into_plain_tensors(target, topology, rows, slots):
    plain = torch.ones(rows, 2, device=topology.device(0))
    found = target.scatter_gather.scatter([torch.nn.Parameter(plain)], topology.take(slots))
    kinds = {(type(chunk), isinstance(chunk, torch.nn.Parameter)) for [chunk] in found}
    checks.same(kinds, {(type(plain), False)}, rows)


@clause("scatter_gather.scatter.new-containers")
@given(kind=st.sampled_from(SPLIT), slots=device_slots(min_size=2))
def test_each_replica_gets_its_own_containers(target, topology, kind, slots):
    inputs = Container(kind, (7, None)).build(topology)
    found = target.scatter_gather.scatter([inputs], topology.take(slots))
    ids = {id(inputs), *(id(container) for [container] in found)}
    checks.same(len(ids), len(slots) + 1, kind, place="number of distinct containers")


#: For each clause: code of objects that every replica gets.
BY_REFERENCE = {
    "scatter_gather.scatter.others-by-reference": ["Opaque()", "{1, 2}"],
    # PyTorch 0.2: zip over an empty container made the whole result empty (#3769).
    "scatter_gather.scatter.empty-containers": EMPTY,
    "scatter_gather.scatter.sealed-containers": OPAQUE,
}


@cases("kind", BY_REFERENCE)
@given(slots=device_slots())
def test_every_replica_gets_the_same_object(target, topology, kind, slots):
    value = NewObject(kind).build(topology)
    found = target.scatter_gather.scatter([value], topology.take(slots))
    checks.same([result is value for [result] in found], [True] * len(slots), kind)


@clause("scatter_gather.scatter.numbers-are-not-split")
@given(numbers=st.lists(st.integers(), min_size=1), slots=device_slots())
def test_list_of_numbers_is_not_split(target, topology, numbers, slots):
    found = target.scatter_gather.scatter(numbers, topology.take(slots))
    checks.same(found, [numbers] * len(slots), numbers)


@clause("scatter_gather.is-namedtuple")
# In torch.nn.parallel, is_namedtuple warns that it is deprecated.
@pytest.mark.filterwarnings("ignore:.is_namedtuple. is deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Pair(1, 2), True),
        (NoFields(), True),
        (WithFields(), False),
        ((1, 2), False),
        (Pair, False),
        ([1], False),
    ],
    ids=["named-tuple", "without-fields", "fields-only", "tuple", "class", "list"],
)
def test_is_namedtuple_returns_whether_a_value_is_a_named_tuple(target, value, expected):
    assert target.scatter_gather.is_namedtuple(value) is expected
