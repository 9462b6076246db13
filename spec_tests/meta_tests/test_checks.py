"""The comparison must fail when it ought to, in words that need no knowledge of the suite."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.outcome import normalised
from spec_tests.harness.compare.snapshot import snapshot

Pair = namedtuple("Pair", "a b")


@dataclass
class Batch:
    x: torch.Tensor


def _differ(actual, expected, **inputs):
    pictures = snapshot(actual, inputs), snapshot(expected, inputs)
    return checks.difference(*pictures, path="result", tolerance=checks.EXACT)


def _ones(*shape, **kwargs):
    return torch.ones(*shape, **kwargs)


WRONG = {
    "value": (_ones(2), torch.tensor([1.0, 2.0]), "values"),
    "dtype": (_ones(2), _ones(2, dtype=torch.float64), "dtype"),
    "shape": (_ones(2, 1), _ones(1, 2), "shape"),
    "strides": (_ones(2, 3), _ones(3, 2).t(), "strides"),
    "requires_grad": (_ones(2), _ones(2, requires_grad=True), "requires_grad"),
    "class": (_ones(2), torch.nn.Parameter(_ones(2), requires_grad=False), "class"),
    "container": ([_ones(2)], (_ones(2),), "builtins.list"),
    "length": ([_ones(2)], [], "members"),
    "keys": ({"a": 1}, {"b": 1}, "members"),
    "order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "members"),
    "mapping": (OrderedDict(a=1), {"a": 1}, "OrderedDict"),
    "namedtuple": (Pair(1, 2), (1, 2), "Pair"),
    "dataclass": (Batch(_ones(2)), Batch(_ones(3)), "result['x']"),
    "leaf": ("x", "y", "'x'"),
    "kind": (None, _ones(2), "NoneType"),
}


@pytest.mark.parametrize(("actual", "expected", "words"), WRONG.values(), ids=WRONG)
def test_every_visible_difference_is_named(actual, expected, words):
    assert words in _differ(actual, expected)
    assert _differ(actual, actual) is None
    assert _differ(expected, expected) is None


def test_a_copy_is_told_from_a_view_of_an_input():
    x = torch.arange(6.0)
    assert "aliasing" in _differ([x[2:4]], [x[2:4].clone()], x=x)
    assert "aliasing" in _differ([x[2:4]], [x[1:3] + 1], x=x)
    assert "aliasing" in _differ([x], [x.view(6)], x=x)


def test_an_object_handed_through_is_told_from_an_equal_one():
    marker = {1, 2}
    assert _differ([marker], [{1, 2}], marker=marker) is not None
    assert _differ([marker], [marker], marker=marker) is None


def test_nan_equals_nan_and_no_number():
    nan = torch.tensor([float("nan")])
    assert _differ(nan, nan.clone()) is None
    assert _differ(nan, torch.zeros(1)) is not None


def test_traceback_frames_and_addresses_are_left_out_of_texts():
    text = (
        'Caught E.\nTraceback:\n  File "x", line 3\n    f()\nE: at 0x7f00\nException raised from c'
    )
    assert normalised(text) == "Caught E.\nTraceback:\nE: at 0x"
