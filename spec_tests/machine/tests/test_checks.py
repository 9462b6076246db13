"""Comparison of outcomes: differences, random numbers, and calls that are not compared."""

import contextlib
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, replace

import pytest
import torch

from spec_tests import checks
from spec_tests.checks import comparison
from spec_tests.checks.outcome import Raised, normalise, observe
from spec_tests.checks.snapshot import snapshot
from spec_tests.failure import CheckError
from spec_tests.machine import capabilities
from spec_tests.machine.target import Target

Pair = namedtuple("Pair", "a b")
REFERENCE = Target("torch.nn.parallel")


@dataclass
class Batch:
    x: torch.Tensor


def _difference(actual, expected, **inputs):
    snapshots = snapshot(actual, inputs), snapshot(expected, inputs)
    found = list(comparison.differences(*snapshots, "output"))
    return comparison.as_text(found) if found else None


def _ones(*shape, **kwargs):
    return torch.ones(*shape, **kwargs)


DIFFERENCES = {
    "value": (_ones(2), torch.tensor([1.0, 2.0]), "values"),
    "sign of zero": (torch.zeros(2), -torch.zeros(2), "values"),
    "payload": (
        _ones(2) * torch.nan,
        torch.tensor([2143289345] * 2).int().view(torch.float32),
        "0x7fc00001",
    ),
    "nan": (_ones(1) * torch.nan, torch.zeros(1), "values"),
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
    "dataclass": (Batch(_ones(2)), Batch(_ones(3)), "output['x']"),
    "leaf": ("x", "y", "'x'"),
    "kind": (None, _ones(2), "NoneType"),
}


@pytest.mark.parametrize(("actual", "expected", "message"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_difference_names_the_property_that_differs(actual, expected, message):
    assert message in _difference(actual, expected)
    assert _difference(actual, actual) is None
    assert _difference(expected, expected) is None


#: For each case: two values, and the facts that differ.
FACTS = {
    "strides": (_ones(2, 3), _ones(3, 2).t(), ["output: strides"]),
    "zero": (torch.zeros(2), _ones(2), ["output: values (zero)"]),
    "order": (torch.tensor([2, 1]), torch.tensor([1, 2]), ["output: values (order)"]),
    "several": (
        [_ones(2), _ones(2)],
        (_ones(2) * 2, _ones(2) * 2),
        ["output: class", "output: values"],
    ),
    "missing": ([None], [_ones(1)], ["output: missing"]),
    "unexpected": ([_ones(1)], [None], ["output: not None"]),
    "class": ([1], ["1"], ["output: class"]),
    "value": ([1], [2], ["output: value"]),
}


@pytest.mark.parametrize(("actual", "expected", "facts"), FACTS.values(), ids=FACTS)
def test_a_failure_has_the_facts_that_differ_without_indices(actual, expected, facts):
    with pytest.raises(CheckError) as caught:
        checks.same(snapshot(actual, {}), snapshot(expected, {}))
    assert caught.value.failure.expected == facts
    assert caught.value.failure.kind == "differs"


#: For each case: what a call does, what it must do, and the kind and the facts of the failure.
ERRORS = {
    "refused": (Raised("KeyError", "row 3 of 4"), 1, "refused", ["error: KeyError: row"]),
    "accepted": (1, Raised("KeyError", "x"), "accepted", ["error: missing"]),
    "text": (
        Raised("ValueError", "chunk expects at least 1 chunk"),
        Raised("ValueError", "no chunk"),
        "differs",
        ["error: ValueError: chunk expects at least"],
    ),
}


@pytest.mark.parametrize(("actual", "expected", "kind", "facts"), ERRORS.values(), ids=ERRORS)
def test_the_fact_about_an_error_is_its_class_and_its_text_without_numbers(
    actual, expected, kind, facts
):
    with pytest.raises(CheckError) as caught:
        checks.same(actual, expected)
    assert (caught.value.failure.kind, caught.value.failure.expected) == (kind, facts)


def test_tensors_with_other_shapes_are_not_the_same():
    with pytest.raises(AssertionError, match="shape"):
        checks.same(_ones(2, 1), _ones(2))


def test_the_other_differences_are_named_after_the_first_one():
    actual = [_ones(3, 2).t(), _ones(1)]
    expected = [torch.arange(6).reshape(2, 3), torch.zeros(1)]
    first, others = _difference(actual, expected).splitlines()
    assert first == "output[0] has dtype torch.float32, expected torch.int64"
    assert others == "  and 3 more differences: strides, values, output[1] values"
    first, others = _difference([_ones(2)], (_ones(2) * 1j,)).splitlines()
    assert first == "output is a builtins.list, expected a builtins.tuple"
    assert others == "  and 2 more differences: output[0] dtype, output[0] values"


def test_a_large_tensor_is_described_by_its_first_wrong_value():
    expected = torch.arange(60.0, device="cpu").reshape(3, 4, 5)
    actual = expected.clone()
    actual[1, 0, 2] = -1
    assert (
        _difference(actual, expected) == "output has values [-1.0 at [1, 0, 2]], expected [22.0]"
    )
    actual[2] = 0
    text = "output has values [-1.0 at [1, 0, 2] and 20 others that differ], expected [22.0]"
    assert _difference(actual, expected) == text


def test_at_most_six_other_differences_are_named():
    text = _difference([_ones(1)] * 9, [torch.zeros(1)] * 9)
    assert text.splitlines()[1].startswith("  and 8 more differences: output[1] values, ")
    assert text.endswith("output[6] values, ...")


def test_a_copy_differs_from_a_view_of_an_input():
    x = torch.arange(6.0)
    assert "aliasing" in _difference([x[2:4]], [x[2:4].clone()], x=x)
    assert "aliasing" in _difference([x[2:4]], [x[1:3] + 1], x=x)
    assert "aliasing" in _difference([x], [x.view(6)], x=x)


def test_an_input_object_differs_from_an_equal_object():
    marker = {1, 2}
    assert _difference([marker], [{1, 2}], marker=marker) is not None
    assert _difference([marker], [marker], marker=marker) is None


def test_normalised_text_has_no_traceback_frames_addresses_and_paths():
    lines = [
        "Caught E.",
        '  File "x", line 3',
        "E: at 0x7f00 in /tmp/a1.cpp",
        "Exception raised from",
    ]
    assert normalise("\n".join(lines)) == "Caught E.\nE: at ... in ..."


def test_a_tensor_without_storage_has_a_snapshot():
    """Some back ends have no storages. The tensors of `torch.vmap` have none, either."""

    def read_aliasing(row):
        return [snapshot(each, {"x": row}).facts["aliasing"] for each in (row, row * 1)]

    found = []
    torch.vmap(lambda row: found.extend(read_aliasing(row)) or row)(_ones(2, 3))
    assert found == ["is x", None]


class RandomCall:
    """A call that draws random numbers on one device."""

    def __init__(self, device):
        self.device = device

    def inputs(self, _topology):
        return {}

    def run(self, _target, _inputs):
        return torch.rand(5, device=self.device)


@pytest.mark.parametrize(
    ("slot", "has_seed_all"),
    [(None, True), (1, True), (0, False)],
    ids=["cpu", "device", "current device, without manual_seed_all"],
)
def test_a_repeated_call_draws_equal_random_numbers(
    target, topology, monkeypatch, slot, has_seed_all
):
    if not has_seed_all:
        monkeypatch.delattr(torch.get_device_module(topology.accelerator), "manual_seed_all")
    call = RandomCall(topology.device(slot))
    first, second = (observe(call, target, topology).result for _ in range(2))
    checks.same(first, second)


@dataclass
class Sum:
    """A call whose result on torch.nn.parallel is wrong, as after an early read."""

    dtype: torch.dtype

    def inputs(self, topology):
        return {"x": torch.ones(2, dtype=self.dtype)}

    def run(self, target, inputs):
        return inputs["x"] * (0 if target is REFERENCE else 1)


@pytest.mark.parametrize(
    ("dtype", "copies", "missing", "is_compared"),
    [
        (torch.complex64, True, set(), False),
        (torch.float32, True, set(), True),
        (torch.complex64, False, set(), True),
        (torch.complex64, True, {"asynchronous-operators"}, True),
    ],
    ids=["read early", "real", "view", "synchronous"],
)
def test_only_complex_tensors_that_are_read_early_are_not_compared(
    oracle, topology, monkeypatch, dtype, copies, missing, is_compared
):
    view, used = torch.view_as_complex, capabilities.in_use()
    if copies:
        monkeypatch.setattr(torch, "view_as_complex", lambda pairs: view(pairs).clone())
    features = (used.features | {"asynchronous-operators"}) - missing
    monkeypatch.setattr(capabilities, "_used", [replace(used, features=features)])
    monkeypatch.setattr(comparison, "_reads_early", comparison._reads_early.__wrapped__)
    text = "target and torch.nn.parallel disagree on"
    with pytest.raises(AssertionError, match=text) if is_compared else contextlib.nullcontext():
        checks.agree(Sum(dtype), oracle, [REFERENCE, oracle], topology)
