"""Wrong chunk counts and refused scalars of the reference: SG-1 to SG-4."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.outcome import cotangent
from spec_tests.harness.compare.refusals import missing_texts
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.tensors import device_slots
from spec_tests.strategies.uneven_chunks import (
    FewRows,
    UnequalChunkCounts,
    few_rows,
    unequal_chunk_counts,
)

FOLLOW_CLAUSE = clause("divergences.SG-1.replicas-follow-chunks")
UNEVEN_CLAUSE = clause("divergences.SG-2.uneven-arguments-are-refused")
UNEVEN_KEYWORD_CLAUSE = clause("divergences.SG-3.uneven-keyword-arguments-are-refused")
SCALARS_CLAUSE = clause("divergences.SG-4.scalars-are-copied")
SCALAR_GRADIENTS_CLAUSE = clause("divergences.SG-4.scalar-gradients-are-summed")


@FOLLOW_CLAUSE
@given(case=few_rows())
@example(case=FewRows(1, 2))
def test_keyword_arguments_are_repeated_for_each_positional_chunk(target, topology, case):
    arguments = (case.tensor(topology),), {"flag": 3}
    inputs, kwargs = target.scatter_gather.scatter_kwargs(*arguments, topology.take(case.devices))
    checks.same(kwargs, ({"flag": 3},) * case.chunk_count, case)
    checks.same([len(args) for args in inputs], [1] * case.chunk_count, case)


@FOLLOW_CLAUSE
@given(case=few_rows())
@example(case=FewRows(1, 2))
def test_positional_arguments_are_repeated_for_each_keyword_chunk(target, topology, case):
    arguments = ("text", [7]), {"x": case.tensor(topology)}
    inputs, kwargs = target.scatter_gather.scatter_kwargs(*arguments, topology.take(case.devices))
    checks.same(inputs, (("text", [7]),) * case.chunk_count, case)
    checks.same(
        [list(replica_kwargs) for replica_kwargs in kwargs], [["x"]] * case.chunk_count, case
    )


@FOLLOW_CLAUSE
@pytest.mark.parametrize("batch_first", [True, False], ids="batch_first={}".format)
@given(case=few_rows())
@example(case=FewRows(5, 4))
def test_an_argument_with_one_row_per_device_gets_the_chunk_count_of_the_batch(
    target, topology, batch_first, case
):
    row_per_device = torch.arange(case.devices).to(topology.device(0))
    pair = case.tensor(topology), row_per_device
    positional, keyword = pair if batch_first else reversed(pair)
    arguments = (positional,), {"x": keyword}
    inputs, kwargs = target.scatter_gather.scatter_kwargs(*arguments, topology.take(case.devices))
    rows = (
        [replica_kwargs["x"] for replica_kwargs in kwargs]
        if batch_first
        else [x for (x,) in inputs]
    )
    checks.same(
        [row.tolist() for row in rows], [[index] for index in range(case.chunk_count)], case
    )
    checks.same([len(inputs), len(kwargs)], [case.chunk_count] * 2, case)


@UNEVEN_CLAUSE
@given(case=unequal_chunk_counts())
@example(case=UnequalChunkCounts((8, 2), 4))
def test_arguments_with_different_chunk_counts_are_refused(target, topology, case):
    first, second = case.tensors(topology)
    arguments = {"x": [first], "y": (None, {"k": second})}
    with pytest.raises(ValueError) as caught:
        target.scatter_gather.scatter(arguments, topology.take(case.devices))
    checks.same(
        missing_texts(
            caught.value, ["inputs['x'][0]", "inputs['y'][1]['k']", *case.error_texts()]
        ),
        [],
    )


@UNEVEN_KEYWORD_CLAUSE
@given(case=unequal_chunk_counts(), positional=st.integers(1, 4))
@example(case=UnequalChunkCounts((8, 2), 4), positional=1)
@example(case=UnequalChunkCounts((8, 2), 4), positional=3)
def test_a_keyword_argument_with_fewer_chunks_is_refused(target, topology, case, positional):
    first, second = case.tensors(topology)
    arguments = (first,) * positional, {"flag": 3, "y": [second]}
    with pytest.raises(ValueError) as caught:
        target.scatter_gather.scatter_kwargs(*arguments, topology.take(case.devices))
    checks.same(
        missing_texts(caught.value, ["args[0]", "kwargs['y'][0]", *case.error_texts()]), []
    )


@SCALARS_CLAUSE
@given(slots=device_slots(), source=st.sampled_from([0, 1, None]), rows=st.integers(1, 3))
def test_a_scalar_is_copied_to_every_replica(target, topology, slots, source, rows):
    scalar = torch.tensor(7, device=topology.device(source))
    tensor = torch.zeros(rows * len(slots), device=topology.device(0))
    found = target.scatter_gather.scatter([tensor, {"n": scalar}], topology.take(slots))
    copies = [container["n"] for _, container in found]
    checks.same([copy.device for copy in copies], topology.take(slots), slots)
    checks.same([copy.tolist() for copy in copies], [7] * len(slots), slots)


@SCALARS_CLAUSE
@given(slots=device_slots())
def test_a_bare_scalar_is_copied_to_every_device(target, topology, slots):
    scalar = torch.tensor(7, device=topology.device(0))
    found = target.scatter_gather.scatter(scalar, topology.take(slots))
    checks.same([copy.tolist() for copy in found], [7] * len(slots), slots)


@SCALAR_GRADIENTS_CLAUSE
@given(slots=device_slots())
def test_gradients_of_the_copies_of_a_scalar_are_summed(target, topology, slots):
    scalar = torch.tensor(2.0, device=topology.device(0), requires_grad=True)
    copies = target.scatter_gather.scatter(scalar, topology.take(slots))
    torch.autograd.backward(list(copies), [cotangent(copy) * 3 for copy in copies])
    checks.same(scalar.grad.item(), 3.0 * len(slots), slots)
