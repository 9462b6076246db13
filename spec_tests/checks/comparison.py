"""Assertions whose messages show the call, the first difference and the names of the others."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile
from operator import eq
from typing import Any

import torch
from torch import Tensor

from spec_tests.checks.nested_values import storage_id, tensors
from spec_tests.checks.outcome import Call, Outcome, Raised, observe
from spec_tests.checks.snapshot import Leaf, Structure, TensorSnapshot
from spec_tests.failure import (
    CheckError,
    Fact,
    Failure,
    Kind,
    error_fact,
    noted_error,
    shorten,
)
from spec_tests.machine import capabilities
from spec_tests.machine.devices import Topology
from spec_tests.machine.target import REFERENCE, Target

#: The length in characters to which each of two values in a text is cut. A title has both.
_MAX_VALUE = 120

#: The tolerance for copies and for sums of small whole numbers. Both are equal bit by bit.
EXACT = 0.0
#: The tolerance for one float32 layer whose input is split into chunks of different sizes. The
#: chunk size changes the order in which a matrix product sums a few dozen terms. The roundings, of
#: at most 2**-24 each, add up to about 2e-6. The rest is a margin for terms that cancel.
LAYER = 1e-4
#: The greatest number of further differences that a text names.
MAX_NAMES = 6
#: The greatest number of values of a tensor that a text shows.
MAX_VALUES = 24


def agree(
    call: Call,
    target: Target,
    baselines: Target | Sequence[Target],
    topology: Topology,
    *,
    tolerance: float = EXACT,
) -> None:
    """Fail unless ``call`` has the same outcome on the target and on all of ``baselines``.

    A call with complex tensors is not compared with torch.nn.parallel where that may read them too
    early. On CUDA, torch.nn.parallel may raise an error for a dtype that NCCL lacks, such as
    int16. Such a call is not compared with it either.

    Args:
        call: The call, made once on each implementation with new inputs.
        target: The implementation under test.
        baselines: The implementations to compare with: the oracle, torch.nn.parallel, or both.
        topology: The devices.
        tolerance: The largest difference of values, relative and absolute.
    """
    __tracebackhide__ = True
    actual = observe(call, target, topology)
    for baseline in [baselines] if isinstance(baselines, Target) else baselines:
        is_reference = baseline.name == REFERENCE
        if is_reference and _may_be_read_early(call, topology):
            continue
        expected = observe(call, baseline, topology)
        if is_reference and "Unconvertible NCCL type" in getattr(expected.result, "text", ""):
            continue
        differing = list(_outcome_differences(actual, expected, tolerance))
        if differing:
            devices = ", ".join(map(str, topology.devices))
            head = (
                f"target and {baseline.name} disagree on\n  {call!r}\nwith devices = [{devices}]:"
            )
            raise _error(differing, actual.result, expected.result, call, head)


def _may_be_read_early(call: Call, topology: Topology) -> bool:
    """Return whether torch.nn.parallel may read an argument of ``call`` too early.

    Its Scatter calls ``torch.view_as_complex`` on a copy before it waits for the copy. Where that
    call returns a view, it reads nothing. Where it copies and operators are asynchronous, the
    result may have old values.
    """
    return _reads_early(topology) and any(
        tensor.is_complex() for _, tensor in tensors(call.inputs(topology), "")
    )


@cache
def _reads_early(topology: Topology) -> bool:
    if not (capabilities.offers("complex64") and capabilities.offers("asynchronous-operators")):
        return False
    pairs = torch.zeros(1, 2, device=topology.device(0))
    number = torch.view_as_complex(pairs)
    pairs.fill_(1)
    return number.real.item() != 1


def same(
    actual: Any,
    expected: Any,
    call: object = "",
    *,
    tolerance: float = EXACT,
    place: str = "output",
) -> None:
    """Fail unless two snapshots, outcomes or tensors are equal.

    The message shows ``call``, which is a `Call` or another value that was drawn. The facts of the
    failure are about ``place``, such as ``gradient``.
    """
    __tracebackhide__ = True
    actual, expected = _to_snapshot(actual), _to_snapshot(expected)
    differing = list(differences(actual, expected, place, tolerance))
    if differing:
        raise _error(differing, actual, expected, call)


def shares_memory(tensor: Tensor, source: Tensor, *, place: str = "output") -> None:
    """Fail unless two tensors have the same storage."""
    __tracebackhide__ = True
    if storage_id(tensor) != storage_id(source):
        text = f"{place} does not share the memory of {' '.join(repr(source.detach()).split())}"
        raise noted_error(Failure("differs", (Fact(place, "aliasing"),), text))


def contains(error: object, texts: Iterable[str], call: object = "") -> None:
    """Fail unless the text of an error contains all ``texts``. The message shows ``call``."""
    __tracebackhide__ = True
    missing = [text for text in texts if text not in str(error)]
    if missing:
        text = f"the error lacks {', '.join(map(repr, missing))}; its text is {str(error)!r}"
        fact = error_fact("text", str(error))
        raise _error_of_call(Failure("differs", (fact,), text), call)


def accepted(call: Call) -> CheckError:
    """Return the error of a call that must be refused, and raises no error."""
    failure = Failure("accepted", (Fact("error", "missing"),), "no error was raised")
    return _error_of_call(failure, call)


def _error(
    differing: Sequence["Difference"], actual: Any, expected: Any, call: object, head: str = ""
) -> CheckError:
    """Return the error of differences; ``actual`` and ``expected`` may be errors of a call."""
    raised = isinstance(actual, Raised), isinstance(expected, Raised)
    kinds: dict[tuple[bool, bool], Kind] = {(True, False): "refused", (False, True): "accepted"}
    facts = tuple(dict.fromkeys(difference.fact for difference in differing))
    failure = Failure(kinds.get(raised, "differs"), facts, as_text(differing))
    return _error_of_call(failure, call, head)


def _error_of_call(failure: Failure, call: object, head: str = "") -> CheckError:
    """Return the error of a failure. Its text shows ``head``, or else ``call``, if given."""
    if call == "":
        return noted_error(failure)
    failure = replace(failure, call=repr(call))
    place = "of the call" if hasattr(call, "run") else "in the case"
    text = f"{head}\n  {failure.text}" if head else f"{failure.text}\n{place}\n  {failure.call}"
    return noted_error(failure, text)


def _to_snapshot(value: Any) -> Any:
    if isinstance(value, Tensor):
        facts = {"shape": tuple(value.shape), "dtype": value.dtype}
        return TensorSnapshot(value.detach().cpu(), facts)
    return value


#: For each field of an outcome: the place that its facts name.
_PLACES = {
    "result": "output",
    "warnings": "warnings",
    "inputs": "input",
    "gradients": "gradient",
    "changes": "state",
}


def _outcome_differences(
    actual: Outcome, expected: Outcome, tolerance: float
) -> Iterator["Difference"]:
    raised = [isinstance(each.result, Raised) for each in (actual, expected)]
    # If only one call raises, all other facts differ, too.
    names = {"result": "output"} if raised[0] != raised[1] else _PLACES
    for name, place in names.items():
        pair = getattr(actual, name), getattr(expected, name)
        if name == "warnings":
            text = "warnings is {}, expected {}".format(*_shorten_both(*map(repr, pair)))
            yield from _text_differences(*pair, place, text)
        elif name == "changes":
            values = ("; ".join(each.values()) or "nothing" for each in pair)
            text = "changed by the call: {}; expected: {}".format(*_shorten_both(*values))
            yield from _text_differences(tuple(pair[0]), tuple(pair[1]), place, text)
        else:
            yield from differences(*pair, place, tolerance)


def _text_differences(
    actual: Sequence[str], expected: Sequence[str], place: str, text: str
) -> Iterator["Difference"]:
    """Yield a difference for each text that the expected list lacks, or else one for the list."""
    for warning in dict.fromkeys(actual):
        if warning not in expected:
            category, _, rest = warning.partition(": ")  # A warning has a class and a text.
            fact = error_fact(category, rest, place) if rest else Fact(place, warning)
            yield Difference(place, fact, text)
    if not {*actual} - {*expected} and actual != expected:
        name = "missing" if {*expected} - {*actual} else "count or order"
        yield Difference(place, Fact(place, name), text)


def as_text(differing: Sequence["Difference"]) -> str:
    """Return the text of the first difference, and a second line with the names of others."""
    first, *others = differing
    if not others:
        return first.text
    names = [_name(other, first) for other in others[:MAX_NAMES]]
    names += ["..."] if len(others) > MAX_NAMES else []
    count = "another difference" if len(others) == 1 else f"{len(others)} more differences"
    return f"{first.text}\n  and {count}: {', '.join(names)}"


def _name(other: "Difference", first: "Difference") -> str:
    """Return a short text for a difference that follows the first one."""
    if other.fact.place.startswith("error") and ": " in other.fact.name:
        # The fact may lack the beginning of the error's text, because it has a number.
        return other.text.partition(", expected ")[0]
    return other.fact.name if other.path == first.path else f"{other.path} {other.fact.name}"


@dataclass(frozen=True)
class Difference:
    """A difference between two snapshots.

    Args:
        path: The path of the two values.
        fact: The fact that differs.
        text: The fact in both snapshots, in one line with both values cut.
    """

    path: str
    fact: Fact
    text: str


def differences(
    actual: Any, expected: Any, place: str, tolerance: float = EXACT, path: str = ""
) -> Iterator[Difference]:
    """Yield the differences between two snapshots. Values of unequal classes have only one.

    Args:
        actual: The snapshot of the target's value.
        expected: The snapshot to compare with.
        place: The place of the values, such as ``output``.
        tolerance: The largest difference of numbers, relative and absolute.
        path: The path of the values, with which the texts begin; empty for ``place``.
    """
    path = path or place
    if type(actual) is type(expected) and isinstance(expected, TensorSnapshot):
        yield from _tensor_differences(actual, expected, path, place, tolerance)
    elif type(actual) is type(expected) and isinstance(expected, Structure):
        yield from _structure_differences(actual, expected, path, place, tolerance)
    elif _have_equal_keys(actual, expected):
        for key, member in _items(actual):
            named = _inner_place(place, key)
            yield from differences(member, expected[key], named, tolerance, f"{path}[{key!r}]")
    elif type(actual) is not type(expected) or actual != expected:
        fact = _value_fact(actual, expected, place)
        path, actual, expected = _differing_entry(actual, expected, path)
        place = f" (at {actual.place})" if isinstance(actual, Raised) and actual.place else ""
        found, wanted = _shorten_both(_describe(actual) + place, _describe(expected))
        yield Difference(path, fact, f"{path} is {found}, expected {wanted}")


def _differing_entry(actual: Any, expected: Any, path: str) -> tuple[str, Any, Any]:
    """Return the first entry that differs in long containers with equal keys, and its path."""
    if (
        type(actual) is type(expected)
        and isinstance(expected, list | tuple | dict)
        and len(_describe(actual)) + len(_describe(expected)) > 2 * _MAX_VALUE
        and [key for key, _ in _items(actual)] == [key for key, _ in _items(expected)]
    ):
        for key, member in _items(actual):
            if type(member) is not type(expected[key]) or member != expected[key]:
                return _differing_entry(member, expected[key], f"{path}[{key!r}]")
    return path, actual, expected


def _inner_place(place: str, key: object) -> str:
    """Return the place of a value that a test has named; numbers and paths are no names."""
    if not isinstance(key, str) or not key.isidentifier():
        return place
    return key if place == "output" else f"{place}.{key}"


def _value_fact(actual: Any, expected: Any, place: str) -> Fact:
    """Return the fact about two values of which one has no other facts."""
    error_place = "error" if place == "output" else f"error of {place}"
    if isinstance(actual, Raised):
        return error_fact(actual.class_name, actual.text, error_place)
    if isinstance(expected, Raised):
        return Fact(error_place, "missing")
    if _is_none(actual) != _is_none(expected):
        return Fact(place, "missing" if _is_none(actual) else "not None")
    if _class_of(actual) != _class_of(expected):
        return Fact(place, "class")
    is_other_object = isinstance(expected, Leaf) and actual.identity != expected.identity
    return Fact(place, "identity" if is_other_object else "value")


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, Leaf) and value.class_name == "builtins.NoneType")


def _class_of(value: Any) -> object:
    return value.class_name if isinstance(value, Leaf | Structure) else type(value)


def _have_equal_keys(actual: Any, expected: Any) -> bool:
    """Return whether both values are dicts with equal keys, or lists of dicts with one length."""
    if type(actual) is not type(expected) or not isinstance(expected, list | dict):
        return False
    if isinstance(expected, list) and not all(isinstance(each, dict) for each in expected):
        return False
    return [key for key, _ in _items(actual)] == [key for key, _ in _items(expected)]


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value)


def _tensor_differences(
    actual: TensorSnapshot, expected: TensorSnapshot, path: str, place: str, tolerance: float
) -> Iterator[Difference]:
    for name, fact in expected.facts.items():
        own = actual.facts.get(name)
        if own != fact:
            text = f"{path} has {name} {own}, expected {fact}"
            yield Difference(path, Fact(place, name), text)
    if differing := _differing_elements(actual.values, expected.values, tolerance):
        texts = _describe_values(actual.values, expected.values, differing)
        found, other = _shorten_both(*texts)
        fact = Fact(place, f"values{_relation(actual.values, expected.values)}")
        yield Difference(path, fact, f"{path} has values {found}, expected {other}")


def _differing_elements(actual: Tensor, expected: Tensor, tolerance: float) -> list[int]:
    """Return the numbers of the elements that differ in tensors of one shape and dtype."""
    if (actual.shape, actual.dtype) != (expected.shape, expected.dtype):
        return []  # Shape or dtype are the difference.
    if tolerance == EXACT or not (expected.is_floating_point() or expected.is_complex()):
        differ = (_bytes(actual) != _bytes(expected)).any(1)
    else:
        close = torch.isclose(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
        differ = ~close.flatten()
    indices: list[int] = differ.nonzero().flatten().tolist()
    return indices


def _relation(actual: Tensor, expected: Tensor) -> str:
    """Return how different values of one shape are related, in parentheses."""
    if not actual.any():
        return " (zero)"
    found, wanted = ([*map(str, each.flatten().tolist())] for each in (actual, expected))
    return " (order)" if found != wanted and sorted(found) == sorted(wanted) else ""


def _describe_values(actual: Tensor, expected: Tensor, differing: list[int]) -> tuple[str, str]:
    """Return all values of two tensors as texts; of large tensors, the first that differ."""
    if expected.numel() <= MAX_VALUES:
        texts = str(actual.tolist()), str(expected.tolist())
        return texts if texts[0] != texts[1] else (_hexadecimal(actual), _hexadecimal(expected))
    place = [int(each) for each in torch.unravel_index(torch.tensor(differing[0]), expected.shape)]
    more = f" and {len(differing) - 1} others that differ" if len(differing) > 1 else ""
    found, wanted = (each.flatten()[differing[0]].item() for each in (actual, expected))
    return f"[{found} at {place}{more}]", f"[{wanted}]"


def _hexadecimal(tensor: Tensor) -> str:
    """Return the bytes of the elements, which differ for NaN with different payloads."""
    elements = _bytes(tensor).flip(1).tolist()
    return f"{tensor.tolist()} (0x{' 0x'.join(bytes(each).hex() for each in elements)})"


def _bytes(tensor: Tensor) -> Tensor:
    """Return the bytes of each element, a row for each."""
    flat = tensor.flatten().clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).reshape(tensor.numel(), tensor.element_size())


def _structure_differences(
    actual: Structure, expected: Structure, path: str, place: str, tolerance: float
) -> Iterator[Difference]:
    if actual.class_name != expected.class_name:
        text = f"{path} is a {actual.class_name}, expected a {expected.class_name}"
        yield Difference(path, Fact(place, "class"), text)
    if list(actual.members) != list(expected.members):
        text = f"{path} {_describe_members([*actual.members], [*expected.members])}"
        yield Difference(path, Fact(place, "members"), text)
    else:
        for key, member in expected.members.items():
            own = actual.members[key]
            yield from differences(own, member, place, tolerance, f"{path}[{key!r}]")


def _describe_members(actual: list[object], expected: list[object]) -> str:
    """Return both lists of members; of long lists, the members that only one of them has."""
    found, wanted = str(actual), str(expected)
    missing = [each for each in expected if each not in actual]
    more = [each for each in actual if each not in expected]
    if len(found) + len(wanted) <= 2 * _MAX_VALUE or not (missing or more):
        found, wanted = _shorten_both(found, wanted)
        return f"has members {found}, expected {wanted}"
    parts = ("lacks", missing), ("has also", more)
    return " and ".join(f"{verb} {members}" for verb, members in parts if members)


def _shorten_both(found: str, wanted: str) -> tuple[str, str]:
    """Return two texts as short lines, without a long beginning that is equal."""
    found, wanted = (" / ".join(each.splitlines()) for each in (found, wanted))
    start = sum(takewhile(bool, map(eq, found, wanted))) - _MAX_VALUE // 4
    if max(len(found), len(wanted)) > _MAX_VALUE and start > 0:
        start = max(start - 20, found.rfind(" ", 0, start) + 1)  # where a word begins
        found, wanted = f"… {found[start:]}", f"… {wanted[start:]}"
    return shorten(found, _MAX_VALUE), shorten(wanted, _MAX_VALUE)


def _describe(value: Any) -> str:
    match value:
        case Raised(name, text):
            return f"the error {name}: {text}" if text else f"the error {name}"
        case TensorSnapshot(values, facts):
            cls = facts.get("class", "torch.Tensor")
            return f"{cls}({values.dtype}, shape {tuple(values.shape)})"
        case Structure(name, members):
            inside = ", ".join(f"{key!r}: {_describe(member)}" for key, member in members.items())
            return f"{name.removeprefix('builtins.')} of {{{inside}}}"
        case Leaf(name, text, identity):
            return f"{'' if name.startswith('builtins.') else name} {text or identity}".strip()
    return repr(value)
