"""Comparison of outcomes: the facts that differ, their texts, and random numbers."""

import re
import warnings
from collections import OrderedDict, namedtuple
from copy import deepcopy
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from spec_tests import checks
from spec_tests.checks.comparison import as_text, differences
from spec_tests.checks.numerical_gradients import require_graphs
from spec_tests.checks.outcome import Raised, normalise, observe
from spec_tests.checks.refusals import refused
from spec_tests.checks.snapshot import snapshot
from spec_tests.failure import PROPERTIES, CheckError

Pair = namedtuple("Pair", "a b")


@dataclass
class Batch:
    x: torch.Tensor


def _failure(actual, expected, **inputs):
    """Return the failure of two values that differ."""
    with pytest.raises(CheckError) as caught:
        checks.same(snapshot(actual, inputs), snapshot(expected, inputs))
    return caught.value.failure


def _ones(*shape, **kwargs):
    return torch.ones(*shape, **kwargs)


NAN = _ones(2) * torch.nan
OTHER_NAN = torch.tensor([2143289345] * 2).int().view(torch.float32)
#: For each case: two values, and the facts that differ, without indices.
DIFFERENCES = {
    "value": (_ones(2), torch.tensor([1.0, 2.0]), ["values"]),
    "zero": (torch.zeros(2), _ones(2), ["values (zero)"]),
    "order": (torch.tensor([2, 1]), torch.tensor([1, 2]), ["values (order)"]),
    "sign of zero": (torch.zeros(2), -torch.zeros(2), ["values (zero)"]),
    "payload of nan": (NAN, OTHER_NAN, ["values"]),
    "dtype": (_ones(2), _ones(2, dtype=torch.float64), ["dtype"]),
    "shape": (_ones(2, 1), _ones(1, 2), ["shape", "strides"]),
    "strides": (_ones(2, 3), _ones(3, 2).t(), ["strides"]),
    "layout": (_ones(2), _ones(2).to_sparse(), ["layout", "coalesced"]),
    "requires_grad": (_ones(2), _ones(2, requires_grad=True), ["requires_grad"]),
    "class": (_ones(2), torch.nn.Parameter(_ones(2), requires_grad=False), ["class"]),
    "container": ([_ones(2)], (_ones(2),), ["class"]),
    "length": ([_ones(2)], [], ["members"]),
    "keys": ({"a": 1}, {"b": 1}, ["members"]),
    "order of keys": ({"a": 1, "b": 2}, {"b": 2, "a": 1}, ["members"]),
    "mapping": (OrderedDict(a=1), {"a": 1}, ["class"]),
    "namedtuple": (Pair(1, 2), (1, 2), ["class", "members"]),
    "dataclass": (Batch(_ones(2)), Batch(_ones(3)), ["shape"]),
    "leaf": ("x", "y", ["value"]),
    "class of a leaf": ([1], ["1"], ["class"]),
    "missing": ([None], [_ones(1)], ["missing"]),
    "unexpected": ([_ones(1)], [None], ["not None"]),
    "several": ([_ones(2), _ones(2)], (_ones(2) * 2, _ones(2) * 2), ["class", "values"]),
}


REWRAPPED = Raised("KeyError", f"Caught KeyError in replica 0.\nTraceback:\n{'x' * 300}")
#: For each case: two values, and the title of their difference.
TITLES = {
    "error": (
        Raised("ValueError", "1 device"),
        Raised("RuntimeError", "no devices\nmore"),
        "output is the error ValueError: 1 device, expected the error RuntimeError: no devices",
    ),
    "error at a line of the target": (
        Raised("KeyError", "a", "mylib/comm.py:6"),
        Raised("KeyError", "b"),
        "output is the error KeyError: a (at mylib/comm.py:6), expected the error KeyError: b",
    ),
    "rewrapped error": (REWRAPPED, 1, "output is the error KeyError: Caught KeyError in replica"),
    "long": ("a" * 999, "b" * 999, f"output is '{'a' * 59} … {'a' * 59}', expected '"),
    "long with an equal part": ("a" * 999 + "b", "a" * 999 + "c", "output is … aaa"),
    "entry of a long container": (
        ("x" * 300, {"a": 1, "grad mode": True}),
        ("x" * 300, {"a": 1, "grad mode": False}),
        "output[1] is {'a': 1, 'grad mode': True}, expected {'a': 1, 'grad mode': False}",
    ),
    "any text": (1, Raised("KeyError", ""), "output is 1, expected the error KeyError"),
    "values": (torch.zeros(24) + 1 / 3, torch.zeros(24), "output has values [0.33"),
    "middle value": (
        torch.arange(24.0),
        torch.arange(24.0).index_fill(0, torch.tensor(12), 99),
        "output has values … 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0",
    ),
}


@pytest.mark.parametrize("case", TITLES)
def test_the_title_of_a_failure_is_a_line_with_both_values(case):
    actual, expected, title = TITLES[case]
    with pytest.raises(CheckError) as caught:
        checks.same(actual, expected)
    found = caught.value.failure.title
    assert found.startswith(title)
    own, _, other = found.partition(", expected ")
    assert own.removeprefix("output is ") != other
    assert len(found) < 300


@pytest.mark.parametrize(("actual", "expected", "facts"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_failure_has_the_facts_that_differ(actual, expected, facts):
    found = _failure(actual, expected)
    assert found.fact_texts == [f"output: {name}" for name in facts]
    assert found.kind == "differs"
    assert {name.partition(" (")[0] for name in facts} <= {*PROPERTIES}
    for each in (actual, expected):
        checks.same(snapshot(each, {}), snapshot(each, {}))


def test_the_text_has_the_first_difference_and_the_names_of_the_others():
    actual = [_ones(3, 2).t(), _ones(1)]
    expected = [torch.arange(6).reshape(2, 3), torch.zeros(1)]
    first, others = _failure(actual, expected).text.splitlines()
    assert first == "output[0] has dtype torch.float32, expected torch.int64"
    assert others == "  and 2 more differences: strides, output[1] values"


def test_another_difference_that_is_an_error_has_its_whole_text():
    error = Raised("RuntimeError", "element 0 of tensors does not require grad")
    differing = [*differences(1, 2, "output"), *differences(error, 1, "gradient")]
    _, others = as_text(differing).splitlines()
    text = "gradient is the error RuntimeError: element 0 of tensors does not require grad"
    assert others == f"  and another difference: {text}"


def test_long_lists_of_members_are_described_by_those_that_differ():
    names = [f"name_{number}" for number in range(30)]
    actual, expected = dict.fromkeys([*names[1:], "_cache"]), dict.fromkeys(names)
    failed = _failure(actual, expected)
    assert failed.text == "output lacks ['name_0'] and has also ['_cache']"
    assert failed.title == failed.text
    assert _failure(expected, {**expected, "last": 1}).text == "output lacks ['last']"
    failed = _failure(expected, dict(reversed(expected.items())))
    assert failed.title.startswith("output has members ['name_0'")
    assert ", expected ['name_29'" in failed.title


def test_a_large_tensor_is_described_by_its_first_wrong_value():
    expected = torch.arange(60.0, device="cpu").reshape(3, 4, 5)
    actual = expected.clone()
    actual[1, 0, 2] = -1
    actual[2] = 0
    text = "output has values [-1.0 at [1, 0, 2] and 20 others that differ], expected [22.0]"
    assert _failure(actual, expected).text == text


def test_a_gradient_without_a_graph_lacks_the_second_gradient():
    leaf = _ones(2, requires_grad=True)
    require_graphs([leaf * 2], "call")
    with pytest.raises(CheckError) as caught:
        require_graphs([leaf * 2, _ones(2)], "call")
    failed = caught.value.failure
    assert failed.fact_texts == ["second gradient: missing"]
    assert (
        failed.text == "the gradients of the inputs [1] have no graph, and so no second gradient"
    )


def test_a_copy_differs_from_a_view_of_an_input():
    x = torch.arange(6.0)
    for view, other in ((x[2:4], x[2:4].clone()), (x[2:4], x[1:3] + 1), (x, x.view(6))):
        assert _failure([view], [other], x=x).fact_texts == ["output: aliasing"]


def test_an_input_object_differs_from_an_equal_object():
    marker = {1, 2}
    assert _failure([marker], [{1, 2}], marker=marker).fact_texts == ["output: identity"]


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


def make_call(run, **inputs):
    """Return a call of ``run``, which gets the target and copies of ``inputs``."""
    return SimpleNamespace(run=run, inputs=lambda _topology: deepcopy(inputs))


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
    call = make_call(lambda *_: torch.rand(5, device=topology.device(slot)))
    first, second = (observe(call, target, topology).result for _ in range(2))
    checks.same(first, second)


def write_and_raise(target, inputs):
    """Write to an input, and then raise the error of the target, if it is not None."""
    inputs["tensor"].zero_()
    if target.error is not None:
        raise target.error


@pytest.mark.parametrize(
    ("error", "kind", "fact"),
    [
        (None, "accepted", "error: missing"),
        (TypeError("x"), "differs", "error: TypeError: x"),
        (ValueError("x"), "differs", "input: values (zero)"),
    ],
    ids=["no error", "another error", "the error"],
)
def test_a_call_that_must_be_refused_first_fails_by_its_error(topology, error, kind, fact):
    target = SimpleNamespace(name="mylib", error=error)
    with pytest.raises(CheckError) as caught:
        refused(make_call(write_and_raise, tensor=_ones(2)), target, topology, "ValueError: x")
    assert (caught.value.failure.kind, caught.value.failure.fact_texts) == (kind, [fact])


#: All words of the text below.
WORDS = "a found right warnings count or order output is expected the userwarning"


def test_two_long_warnings_are_shortened_separately(topology):
    found, expected = (SimpleNamespace(name=f"a {word * 99}") for word in ("found ", "right "))
    call = make_call(lambda target, _: warnings.warn(target.name, stacklevel=1))
    with pytest.raises(CheckError) as caught:
        checks.agree(call, found, [expected], topology)
    for text in (caught.value.failure.title, caught.value.failure.text):
        own, _, other = text.partition(", expected ")
        assert ("found" in own, "right" in own) == (True, False)
        assert ("found" in other, "right" in other) == (False, True)
        assert {*re.findall(r"[a-z]+", text.lower())} <= {*WORDS.split(" ")}  # None is cut.


def test_a_call_that_leaves_device_and_stream_changed_is_noticed_each_time(target, topology):
    device = topology.device(1)
    call = make_call(lambda *_: torch.accelerator.set_stream(torch.Stream(device)))
    first, second = (observe(call, target, topology).changes for _ in range(2))
    assert list(first) == list(second) == ["current device", f"current stream ({device})"]
