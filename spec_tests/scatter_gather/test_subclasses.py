"""Subclasses of Tensor, whose attributes the reference drops: SG-14."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.tensor_subclasses import Named
from spec_tests.strategies.tensors import device_slots

CHUNKS_CLAUSE = clause("divergences.SG-14.chunks-keep-class-and-attributes")


@CHUNKS_CLAUSE
@pytest.mark.parametrize("slot", [0, None], ids=["accelerator", "cpu"])
@given(slots=device_slots(), requires_grad=st.booleans())
def test_chunks_have_the_class_and_the_attributes_of_their_tensor(
    target, topology, slot, slots, requires_grad
):
    rows = torch.arange(float(len(slots))).to(topology.device(slot)).as_subclass(Named)
    rows.axis = {"name": "axis"}
    chunks = target.scatter_gather.scatter(
        rows.requires_grad_(requires_grad), topology.take(slots)
    )
    checks.same([type(chunk) for chunk in chunks], [Named] * len(slots))
    checks.same([chunk.axis is rows.axis for chunk in chunks], [True] * len(slots))
