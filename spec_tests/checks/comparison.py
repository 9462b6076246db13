"""Assertions whose messages show the call, the first difference and the names of the others."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import torch
from torch import Tensor

from spec_tests.checks.nested_values import tensors
from spec_tests.checks.outcome import Call, Failure, Outcome, observe
from spec_tests.checks.snapshot import Leaf, Structure, TensorSnapshot
from spec_tests.machine import capabilities
from spec_tests.machine.target import REFERENCE, Target
from spec_tests.machine.topology import Topology

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
        if baseline.name == REFERENCE and _may_be_read_early(call, topology):
            continue
        expected = observe(call, baseline, topology)
        if baseline.name == REFERENCE and _is_refused_by_nccl(expected):
            continue
        difference_text = _outcome_difference(actual, expected, tolerance)
        if difference_text is not None:
            raise AssertionError(_disagreement_text(call, topology, baseline, difference_text))


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


def _is_refused_by_nccl(outcome: Outcome) -> bool:
    result = outcome.result
    return isinstance(result, Failure) and "Unconvertible NCCL type" in result.text


def same(actual: Any, expected: Any, call: object = "", *, tolerance: float = EXACT) -> None:
    """Fail unless two snapshots, outcomes or tensors are equal.

    The message shows ``call``, which is a `Call` or another value that was drawn.
    """
    __tracebackhide__ = True
    text = difference(_to_snapshot(actual), _to_snapshot(expected), "result", tolerance)
    if text is not None:
        head = "of the call" if hasattr(call, "run") else "in the case"
        raise AssertionError(f"{text}\n{head}\n  {call!r}" if call != "" else text)


def contains(error: object, texts: Iterable[str], call: object = "") -> None:
    """Fail unless the text of an error contains all ``texts``. The message shows ``call``."""
    __tracebackhide__ = True
    missing = [text for text in texts if text not in str(error)]
    if missing:
        text = f"the error lacks {', '.join(map(repr, missing))}\n  its text is {str(error)!r}"
        raise AssertionError(f"{text}\nin the case\n  {call!r}" if call != "" else text)


def _to_snapshot(value: Any) -> Any:
    if isinstance(value, Tensor):
        return TensorSnapshot(value.detach().cpu(), {"shape": tuple(value.shape)})
    return value


def _disagreement_text(
    call: Call, topology: Topology, baseline: Target, difference_text: str
) -> str:
    devices = ", ".join(f"{device}" for device in topology.devices)
    return (
        f"target and {baseline.name} disagree on\n  {call!r}\n"
        f"with devices = [{devices}]:\n  {difference_text}"
    )


def _outcome_difference(actual: Outcome, expected: Outcome, tolerance: float) -> str | None:
    found: list[Difference] = []
    for field in fields(Outcome):
        pair = getattr(actual, field.name), getattr(expected, field.name)
        found += _differences(*pair, path=field.name, tolerance=tolerance)
    return _as_text(found)


def difference(actual: Any, expected: Any, path: str, tolerance: float) -> str | None:
    """Describe the first difference between two snapshots, and name the other ones in a line.

    Return None if the snapshots are equal.

    Args:
        actual: The snapshot of the target's value.
        expected: The snapshot to compare with.
        path: The path of the two values. The returned text begins with this path.
        tolerance: The largest difference of numbers, relative and absolute.
    """
    return _as_text(list(_differences(actual, expected, path, tolerance)))


def _as_text(found: Sequence["Difference"]) -> str | None:
    """Return the text of the first difference, and a second line with the names of others."""
    if not found:
        return None
    first, *others = found
    if not others:
        return first.text
    names = [each.name_after(first) for each in others[:MAX_NAMES]]
    names += ["..."] if len(others) > MAX_NAMES else []
    count = "another difference" if len(others) == 1 else f"{len(others)} more differences"
    return f"{first.text}\n  and {count}: {', '.join(names)}"


@dataclass(frozen=True)
class Difference:
    """A difference between two snapshots.

    Args:
        path: The path of the two values.
        fact: The name of the fact that differs, such as ``dtype``; empty for a value that has no
            other facts.
        text: The fact in both snapshots.
    """

    path: str
    fact: str
    text: str

    def name_after(self, first: "Difference") -> str:
        """Return path and fact, or only the fact if ``first`` has the same path."""
        path = self.path if self.path != first.path or not self.fact else ""
        return f"{path} {self.fact}".strip()


def _differences(actual: Any, expected: Any, path: str, tolerance: float) -> Iterator[Difference]:
    """Yield the differences between two snapshots. Values of unequal classes have only one."""
    if type(actual) is type(expected) and isinstance(expected, TensorSnapshot):
        yield from _tensor_differences(actual, expected, path, tolerance)
    elif type(actual) is type(expected) and isinstance(expected, Structure):
        yield from _structure_differences(actual, expected, path, tolerance)
    elif _have_equal_keys(actual, expected):
        for key, found in _items(actual):
            yield from _differences(found, expected[key], f"{path}[{key!r}]", tolerance)
    elif type(actual) is not type(expected) or actual != expected:
        text = f"{path} is {_describe(actual)}, expected {_describe(expected)}"
        yield Difference(path, "", text)


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
    actual: TensorSnapshot, expected: TensorSnapshot, path: str, tolerance: float
) -> Iterator[Difference]:
    for name, fact in expected.facts.items():
        found = actual.facts.get(name)
        if found != fact:
            yield Difference(path, name, f"{path} has {name} {found}, expected {fact}")
    if not _is_close(actual.values, expected.values, tolerance):
        found, other = _different_values(actual.values, expected.values, tolerance)
        yield Difference(path, "values", f"{path} has values {found}, expected {other}")


def _different_values(actual: Tensor, expected: Tensor, tolerance: float) -> tuple[str, str]:
    """Return all values of two tensors as texts; of large tensors, the first that differ."""
    if expected.numel() <= MAX_VALUES:
        texts = str(actual.tolist()), str(expected.tolist())
        return texts if texts[0] != texts[1] else (_hexadecimal(actual), _hexadecimal(expected))
    pairs = zip(actual.flatten(), expected.flatten(), strict=True)
    differing = [i for i, pair in enumerate(pairs) if not _is_close(*pair, tolerance)]
    place = tuple(
        int(each) for each in torch.unravel_index(torch.tensor(differing[0]), expected.shape)
    )
    more = f" and {len(differing) - 1} others that differ" if len(differing) > 1 else ""
    return f"[{actual[place].item()} at {list(place)}{more}]", f"[{expected[place].item()}]"


def _hexadecimal(tensor: Tensor) -> str:
    """Return the bytes of the elements, which differ for NaN with different payloads."""
    elements = _bytes(tensor).reshape(tensor.numel(), tensor.element_size()).flip(1)
    return f"{tensor.tolist()} (0x{' 0x'.join(bytes(each).hex() for each in elements.tolist())})"


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.flatten().clone(memory_format=torch.contiguous_format).view(torch.uint8)


def _is_close(actual: Tensor, expected: Tensor, tolerance: float) -> bool:
    if actual.shape != expected.shape:
        return True  # The shape is the difference.
    if actual.dtype != expected.dtype:
        is_complex = actual.is_complex() or expected.is_complex()
        actual, expected = (
            each.to(torch.complex128 if is_complex else torch.float64)
            for each in (actual, expected)
        )
    if tolerance == EXACT or not (expected.is_floating_point() or expected.is_complex()):
        return torch.equal(_bytes(actual), _bytes(expected))
    return torch.allclose(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def _structure_differences(
    actual: Structure, expected: Structure, path: str, tolerance: float
) -> Iterator[Difference]:
    if actual.kind != expected.kind:
        text = f"{path} is a {actual.kind}, expected a {expected.kind}"
        yield Difference(path, "class", text)
    if list(actual.members) != list(expected.members):
        lists = list(actual.members), list(expected.members)
        yield Difference(path, "members", f"{path} has members {lists[0]}, expected {lists[1]}")
    else:
        for key, member in expected.members.items():
            yield from _differences(actual.members[key], member, f"{path}[{key!r}]", tolerance)


def _describe(value: Any) -> str:
    match value:
        case Failure(kind, text):
            return f"the error {kind}: {text}"
        case TensorSnapshot(values, facts):
            return f"a tensor {dict(facts)} {values.tolist()}"
        case Structure(kind, members):
            inside = ", ".join(f"{key!r}: {_describe(member)}" for key, member in members.items())
            return f"{kind} of {{{inside}}}"
        case Leaf(kind, text, identity):
            return f"{kind} {text or identity}"
    return repr(value)
