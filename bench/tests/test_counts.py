"""bench.counts: the comparison of counts, and counts of a call."""

import pytest
import torch

from bench import counts

ALLOWED = {"call": {"operators": 10, "Python calls": 100}}


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        ({"call": {"operators": 10, "Python calls": 102}}, []),
        ({"call": {"operators": 9, "Python calls": 90}}, []),
        ({"call": {"operators": 11, "Python calls": 100}}, ["call: 11 operators, not 10"]),
        ({"call": {"operators": 10, "Python calls": 103}}, ["call: 103 Python calls, not 100"]),
        ({"call": {"waits": 1}}, ["call: 1 waits, not 0"]),
        ({"other": {"waits": 0}}, ["other: not in the file"]),
    ],
    ids=["order of threads", "less", "operators", "Python calls", "new count", "new call"],
)
def test_a_count_may_not_grow(found, lines):
    assert counts.find_growth(found, ALLOWED) == lines


def test_operators_and_copied_elements_of_a_call_are_counted():
    x, y = torch.zeros(3, 2), torch.ones(3, 2)
    found = counts.measure({"copy": lambda: x.copy_(y)})["copy"]
    assert (found["operators"], found["copies"], found["copied elements"]) == (1, 1, 6)
    assert found["threads woken"] == 0
