"""Outputs that the reference loses or refuses: SG-6, SG-7 and SG-9."""

import warnings
from collections import UserString
from collections.abc import Sequence

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.machine.clauses import clause
from spec_tests.strategies.containers import Opaque, Typed


class FailingIterable:
    """An iterable whose iteration ends with an AttributeError, like some transformers caches."""

    error_text = "'Layer' object has no attribute 'keys'"

    def __init__(self, members):
        self.members = list(members)

    def __iter__(self):
        yield from self.members
        raise AttributeError(self.error_text)


class FailingConstructor:
    """An iterable that gather cannot rebuild: the constructor needs two arguments, not one."""

    error_text = r"__init__\(\) missing 1 required"

    def __init__(self, first, second):
        self.members = first, second

    def __iter__(self):
        return iter(self.members)


def failing_iterable(device):
    return FailingIterable([torch.ones(1, device=device)])


def failing_constructor(device):
    return FailingConstructor(*torch.ones(2, 1, device=device))


failing = st.sampled_from([failing_iterable, failing_constructor])
texts = st.lists(st.text(max_size=3), min_size=1, max_size=4)
numbers = st.lists(
    st.integers()
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False),
    min_size=1,
    max_size=4,
)
others = st.lists(
    st.builds(Opaque)
    | st.binary(max_size=2)
    | st.just(torch.float16)
    | st.just(range(2))
    | st.builds(UserString, st.text(max_size=2)),
    min_size=1,
    max_size=4,
)
masks = st.lists(st.booleans(), min_size=2, max_size=4).filter(lambda mask: len(set(mask)) == 2)


@clause("divergences.SG-6.strings-are-listed")
@given(values=texts)
@example(values=["a", "b"])
def test_strings_are_gathered_into_a_list(target, topology, values):
    checks.same(target.scatter_gather.gather(values, topology.device(0)), values)


@clause("divergences.SG-6.strings-are-listed")
@given(values=texts)
@example(values=["a", "b"])
def test_strings_in_containers_are_gathered_into_a_list(target, topology, values):
    outputs = [{"name": [value, "same"]} for value in values]
    found = target.scatter_gather.gather(outputs, topology.device(0))
    checks.same(found, {"name": [values, ["same"] * len(values)]}, outputs)


@clause("divergences.SG-7.numbers-are-listed")
@given(values=numbers)
@example(values=[1, 2])
@example(values=[True, False])
def test_numbers_are_gathered_into_a_list(target, topology, values):
    checks.same(target.scatter_gather.gather(values, topology.device(0)), values)


@clause("divergences.SG-7.numbers-are-listed")
@given(values=numbers)
@example(values=[1, 2])
def test_numbers_beside_tensors_are_gathered_into_a_list(target, topology, values):
    devices = topology.take(len(values))
    tensors = [torch.ones(1, device=device) for device in devices]
    outputs = [Typed(*pair) for pair in zip(tensors, values, strict=True)]
    found = target.scatter_gather.gather(outputs, topology.device(0))
    checks.same((type(found), len(found.left), found.right), (Typed, len(values), values), values)


@clause("divergences.SG-7.other-values-are-listed")
@given(values=others)
@example(values=[Opaque(), Opaque()])
@example(values=[UserString("a"), UserString("b")])
def test_objects_bytes_dtypes_and_ranges_are_gathered_into_a_list(target, topology, values):
    found = target.scatter_gather.gather([(value,) for value in values], topology.device(0))
    checks.same(_name_each(found[0], values), _name_each(values, values), values)


@clause("divergences.SG-7.failing-iterables-are-listed")
@given(make=failing, count=st.integers(1, 4), depth=st.integers(0, 2), first=st.booleans())
@example(make=failing_iterable, count=2, depth=0, first=True)
@example(make=failing_constructor, count=2, depth=0, first=True)
def test_failing_iterables_are_gathered_into_a_list(target, topology, make, count, depth, first):
    devices = topology.take(count)
    values = [make(device) for device in devices]
    tensors = [torch.full((2,), float(slot), device=d) for slot, d in enumerate(devices)]
    outputs = [_pair(*pair, depth, first) for pair in zip(values, tensors, strict=True)]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = target.scatter_gather.gather(outputs, devices[0])
    listed, joined = _unpair(found, depth, first)
    assert [warning.category for warning in warned] == [UserWarning]
    assert type(listed) is list
    checks.same(_name_each(listed, values), _name_each(values, values), values)
    checks.same(joined, torch.cat([tensor.to(devices[0]) for tensor in tensors]))


def _name_each(found, values):
    """Return for each object in ``found`` its place in ``values``, or its repr if it is new."""
    places = {id(value): f"values[{place}]" for place, value in enumerate(values)}
    return [places.get(id(each), repr(each)) for each in found]


def _pair(value, tensor, depth, first):
    for _ in range(depth):
        value = {"x": value}
    return (value, tensor) if first else (tensor, value)


def _unpair(pair, depth, first):
    value, tensor = pair if first else reversed(pair)
    for _ in range(depth):
        value = value["x"]
    return value, tensor


def _outputs(topology, mask: Sequence[bool]) -> list[object]:
    """Return an output for each element of ``mask``: with None for true, a tensor for false."""
    devices = topology.take(len(mask))
    tensors = [
        None if none else torch.ones(1, device=d) for none, d in zip(mask, devices, strict=True)
    ]
    return [{"x": ["always", tensor]} for tensor in tensors]


def _replica_list(mask: Sequence[bool], is_none: bool) -> str:
    return str([replica for replica, none in enumerate(mask) if none is is_none])


@clause("divergences.SG-9.none-beside-others-is-refused")
@given(mask=masks, nested=st.booleans())
@example(mask=[True, False], nested=True)
@example(mask=[False, True], nested=False)
def test_none_beside_tensors_is_refused(target, topology, mask, nested):
    outputs = _outputs(topology, mask)
    if not nested:
        outputs = [output["x"][1] for output in outputs]
    with pytest.raises(ValueError) as caught:
        target.scatter_gather.gather(outputs, topology.device(0))
    texts = [_replica_list(mask, True), _replica_list(mask, False), *["['x'][1]"] * nested]
    checks.contains(caught.value, texts, mask)
