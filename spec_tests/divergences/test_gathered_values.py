"""Where the reference loses what replicas return: SG-6, SG-7 and SG-9."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.harness import checks
from spec_tests.harness.clauses import clause
from spec_tests.harness.refusals import unsaid
from spec_tests.strategies.containers import Opaque, Typed

STRINGS = clause("divergences.SG-6.strings-are-listed")
NUMBERS = clause("divergences.SG-7.numbers-are-listed")
OTHERS = clause("divergences.SG-7.other-values-are-listed")
NONE = clause("divergences.SG-9.none-beside-others-is-refused")

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
    st.builds(Opaque) | st.binary(max_size=2) | st.just(torch.float16) | st.just(range(2)),
    min_size=1,
    max_size=4,
)
masks = st.lists(st.booleans(), min_size=2, max_size=4).filter(lambda mask: len(set(mask)) == 2)


@STRINGS
@given(values=texts)
@example(values=["a", "b"])
def test_strings_come_back_as_a_list(target, topology, values):
    checks.same(target.scatter_gather.gather(values, topology.device(0)), values)


@STRINGS
@given(values=texts)
@example(values=["a", "b"])
def test_strings_in_containers_come_back_as_a_list(target, topology, values):
    outputs = [{"name": [value, "same"]} for value in values]
    found = target.scatter_gather.gather(outputs, topology.device(0))
    checks.same(found, {"name": [values, ["same"] * len(values)]}, outputs)


@STRINGS
@given(values=texts)
def test_reference_gives_the_text_of_an_object(reference, topology, values):
    found = reference.scatter_gather.gather(values, topology.device(0))
    checks.same(found.startswith("<map object at 0x"), True, values)


@NUMBERS
@given(values=numbers)
@example(values=[1, 2])
@example(values=[True, False])
def test_numbers_come_back_as_a_list(target, topology, values):
    checks.same(target.scatter_gather.gather(values, topology.device(0)), values)


@NUMBERS
@given(values=numbers)
@example(values=[1, 2])
def test_numbers_beside_tensors_come_back_as_a_list(target, topology, values):
    devices = topology.take(len(values))
    tensors = [torch.ones(1, device=device) for device in devices]
    outputs = [Typed(*pair) for pair in zip(tensors, values, strict=True)]
    found = target.scatter_gather.gather(outputs, topology.device(0))
    checks.same((type(found), len(found.left), found.right), (Typed, len(values), values), values)


@NUMBERS
@given(values=numbers)
def test_reference_refuses_numbers(reference, topology, values):
    with pytest.raises(TypeError, match="object is not iterable"):
        reference.scatter_gather.gather(values, topology.device(0))


@OTHERS
@given(values=others)
@example(values=[Opaque(), Opaque()])
def test_other_values_come_back_as_a_list(target, topology, values):
    found = target.scatter_gather.gather([(value,) for value in values], topology.device(0))
    checks.same([*map(id, found[0])], [*map(id, values)], values)


@OTHERS
@given(count=st.integers(1, 4))
def test_reference_refuses_other_values(reference, topology, count):
    with pytest.raises(TypeError, match="'Opaque' object is not iterable"):
        reference.scatter_gather.gather([Opaque()] * count, topology.device(0))


def _outputs(topology, mask: Sequence[bool]) -> list[object]:
    """One output a replica, with None in place of the tensor where ``mask`` says so."""
    devices = topology.take(len(mask))
    tensors = [
        None if none else torch.ones(1, device=d) for none, d in zip(mask, devices, strict=True)
    ]
    return [{"x": ["always", tensor]} for tensor in tensors]


def _replicas(mask: Sequence[bool], wanted: bool) -> str:
    return str([replica for replica, none in enumerate(mask) if none is wanted])


@NONE
@given(mask=masks)
@example(mask=[True, False])
@example(mask=[False, True])
def test_none_beside_tensors_is_refused(target, topology, mask):
    with pytest.raises(ValueError) as caught:
        target.scatter_gather.gather(_outputs(topology, mask), topology.device(0))
    facts = ["['x'][1]", _replicas(mask, True), _replicas(mask, False)]
    checks.same(unsaid(caught.value, facts), [], mask)


@NONE
@given(mask=masks)
def test_reference_drops_the_tensors_after_none(reference, topology, mask):
    outputs = [output["x"][1] for output in _outputs(topology, [True, *mask])]
    checks.same(reference.scatter_gather.gather(outputs, topology.device(0)), None, mask)


@NONE
@given(mask=masks)
def test_reference_stumbles_over_none_after_tensors(reference, topology, mask):
    outputs = [output["x"][1] for output in _outputs(topology, [False, *mask])]
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'device'"):
        reference.scatter_gather.gather(outputs, topology.device(0))
