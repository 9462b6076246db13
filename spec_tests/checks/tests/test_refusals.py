"""Errors of clauses: their texts, and the comparison with the errors of a target."""

import pytest

from spec_tests.checks.refusals import check_error
from spec_tests.machine.clauses import error_of
from spec_tests.machine.devices import Topology

TOPOLOGY = Topology("cuda", (0,))


def test_values_replace_names_in_the_error_of_a_clause():
    error = error_of("comm.scatter.refuses-scalars", operation="chunk")
    assert error == "RuntimeError: chunk expects at least a 1-dimensional tensor"


@pytest.mark.parametrize(
    "error",
    [
        "ValueError: got: a CUDA device",
        "ValueError: got: a {KIND} device",
        "ValueError: …got…CUDA…",
    ],
)
def test_an_error_with_class_and_text_is_accepted(error):
    check_error(ValueError("got: a CUDA device"), error, TOPOLOGY)


@pytest.mark.parametrize(
    "error",
    [
        "ValueError: got: a CUDA",
        "TypeError: got: a CUDA device",
        "TypeError: …",
        "ValueError: …CPU…",
    ],
)
def test_another_class_or_text_fails(error):
    with pytest.raises(AssertionError):
        check_error(ValueError("got: a CUDA device"), error, TOPOLOGY)
