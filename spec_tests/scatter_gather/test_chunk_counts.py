"""Wrong chunk counts of the reference: SG-1 to SG-3."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.machine.clauses import clause
from spec_tests.oracle.chunk_sizes import even_chunks

#: Draws a number of rows and of devices, with fewer chunks than devices.
FEW_ROWS = st.sampled_from(
    [
        (rows, count)
        for count in (2, 3, 4)
        for rows in (1, 2, 3, 5, 6)
        if len(even_chunks(rows, count)) < count
    ]
)
#: Draws the rows of two arguments with different numbers of chunks, and a number of devices. No
#: argument has one row for each device: row i may be meant for device i.
UNEQUAL_ROWS = st.sampled_from(
    [
        ((first, second), count)
        for count in (2, 3, 4)
        for first in (1, 2, 4, 8)
        for second in (1, 2, 3, 8)
        if len(even_chunks(first, count)) != len(even_chunks(second, count))
        and count not in (first, second)
    ]
)


def arange(rows, topology):
    return torch.arange(rows).to(topology.device(0))


def check_refused(function, arguments, topology, case, *names):
    """Fail unless the error has the names of two arguments, their rows and chunk counts."""
    pair, devices = case
    counts = [len(even_chunks(rows, devices)) for rows in pair]
    texts = [*names, *map("size {} ".format, pair), *map("({} chunks)".format, counts)]
    with pytest.raises(ValueError) as caught:
        function(*arguments, topology.take(devices))
    checks.contains(caught.value, texts, case)


@clause("divergences.SG-1.replicas-follow-chunks")
@given(case=FEW_ROWS)
@example(case=(1, 2))
def test_keyword_arguments_are_repeated_for_each_positional_chunk(target, topology, case):
    arguments = (arange(case[0], topology),), {"flag": 3}
    inputs, kwargs = target.scatter_gather.scatter_kwargs(*arguments, topology.take(case[1]))
    checks.same(kwargs, ({"flag": 3},) * len(even_chunks(*case)), case)
    checks.same([len(args) for args in inputs], [1] * len(kwargs), case)


@clause("divergences.SG-1.replicas-follow-chunks")
@given(case=FEW_ROWS)
@example(case=(1, 2))
def test_positional_arguments_are_repeated_for_each_keyword_chunk(target, topology, case):
    arguments = ("text", [7]), {"x": arange(case[0], topology)}
    inputs, kwargs = target.scatter_gather.scatter_kwargs(*arguments, topology.take(case[1]))
    checks.same(inputs, (("text", [7]),) * len(even_chunks(*case)), case)
    checks.same([list(each) for each in kwargs], [["x"]] * len(inputs), case)


@clause("divergences.SG-1.replicas-follow-chunks")
@pytest.mark.parametrize("batch_first", [True, False], ids="batch_first={}".format)
@given(case=FEW_ROWS)
@example(case=(5, 4))
def test_an_argument_with_one_row_per_device_gets_the_chunk_count_of_the_batch(
    target, topology, batch_first, case
):
    pair = [arange(count, topology) for count in (case if batch_first else case[::-1])]
    arguments = (pair[0],), {"x": pair[1]}
    inputs, kwargs = target.scatter_gather.scatter_kwargs(*arguments, topology.take(case[1]))
    rows = [each["x"] for each in kwargs] if batch_first else [x for (x,) in inputs]
    count = len(even_chunks(*case))
    checks.same([row.tolist() for row in rows], [[index] for index in range(count)], case)
    checks.same([len(inputs), len(kwargs)], [count] * 2, case)


@clause("divergences.SG-2.uneven-arguments-are-refused")
@given(case=UNEQUAL_ROWS)
@example(case=((8, 2), 4))
def test_arguments_with_different_chunk_counts_are_refused(target, topology, case):
    first, second = (arange(rows, topology) for rows in case[0])
    arguments = {"x": [first], "y": (None, {"k": second})}
    names = "inputs['x'][0]", "inputs['y'][1]['k']"
    check_refused(target.scatter_gather.scatter, (arguments,), topology, case, *names)


@clause("divergences.SG-3.uneven-keyword-arguments-are-refused")
@given(case=UNEQUAL_ROWS, positional=st.integers(1, 4))
@example(case=((8, 2), 4), positional=1)
@example(case=((8, 2), 4), positional=3)
def test_a_keyword_argument_with_fewer_chunks_is_refused(target, topology, case, positional):
    first, second = (arange(rows, topology) for rows in case[0])
    arguments = (first,) * positional, {"flag": 3, "y": [second]}
    names = "args[0]", "kwargs['y'][0]"
    check_refused(target.scatter_gather.scatter_kwargs, arguments, topology, case, *names)
