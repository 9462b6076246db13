"""Attributes of containers that are rebuilt: made by their class, or carried (SG-16)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.machine.clauses import clause
from spec_tests.strategies.stateful_containers import (
    CARRY_ATTRIBUTES,
    KEEP_CLASS,
    MAKE_ATTRIBUTES,
    contents,
)
from spec_tests.strategies.tensors import device_slots

ROWS = st.integers(1, 9)
MAKE = pytest.mark.parametrize("build", MAKE_ATTRIBUTES.values(), ids=MAKE_ATTRIBUTES)
CARRY = pytest.mark.parametrize("build", CARRY_ATTRIBUTES.values(), ids=CARRY_ATTRIBUTES)


def check_scatter(target, topology, build, rows, slots):
    """Check that each chunk of a container is the container of a chunk of its rows."""
    tensor, devices = torch.arange(2 * rows).view(rows, 2), topology.take(slots)
    chunks = target.scatter_gather.scatter(tensor.to(topology.device(0)), devices)
    found = target.scatter_gather.scatter([build(tensor.to(topology.device(0)))], devices)
    expected = [contents([build(chunk)]) for chunk in chunks]
    checks.same([contents(each) for each in found], expected, (rows, slots))


def check_gather(target, topology, build, rows, slots):
    """Check that the gathered containers are the container of all rows."""
    tensor = torch.arange(2 * rows).view(rows, 2)
    chunks = zip(tensor.chunk(len(slots)), topology.take(slots), strict=False)
    outputs = [[build(chunk.to(device))] for chunk, device in chunks]
    found = target.scatter_gather.gather(outputs, topology.device(0))
    checks.same(contents(found), contents([build(tensor)]), (rows, slots))


@clause("scatter_gather.scatter.attributes-are-made")
@MAKE
@given(rows=ROWS, slots=device_slots())
def test_the_class_of_a_scattered_dictionary_makes_its_attributes(
    target, topology, build, rows, slots
):
    check_scatter(target, topology, build, rows, slots)


@clause("scatter_gather.gather.attributes-are-made")
@MAKE
@given(rows=ROWS, slots=device_slots())
def test_the_class_of_a_gathered_dictionary_makes_its_attributes(
    target, topology, build, rows, slots
):
    check_gather(target, topology, build, rows, slots)


@clause("divergences.SG-16.attributes-are-split")
@pytest.mark.parametrize(
    "build",
    [*CARRY_ATTRIBUTES.values(), *KEEP_CLASS.values()],
    ids=[*CARRY_ATTRIBUTES, *KEEP_CLASS],
)
@given(rows=ROWS, slots=device_slots())
def test_attributes_of_a_scattered_container_are_split(target, topology, build, rows, slots):
    check_scatter(target, topology, build, rows, slots)


@clause("divergences.SG-16.attributes-are-joined")
@CARRY
@given(rows=ROWS, slots=device_slots())
def test_attributes_of_a_gathered_container_are_joined(target, topology, build, rows, slots):
    check_gather(target, topology, build, rows, slots)
