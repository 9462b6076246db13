"""Assertions whose messages show the call and the first difference."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from spec_tests.harness.compare.outcome import Call, Failure, Outcome, observe
from spec_tests.harness.compare.snapshot import Leaf, Structure, TensorSnapshot
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology

#: The tolerance for copies and for sums of small whole numbers: both are exact.
EXACT = 0.0
#: The tolerance for one float32 layer whose input is split into chunks of different sizes. The
#: chunk size changes the order in which a matrix product sums a few dozen terms. The roundings, of
#: at most 2**-24 each, add up to about 2e-6. The rest is a margin for terms that cancel.
LAYER = 1e-4


def agree(
    call: Call,
    target: Target,
    baselines: Target | Sequence[Target],
    topology: Topology,
    *,
    tolerance: float = EXACT,
) -> None:
    """Fail unless ``call`` has the same outcome on the target and on all of ``baselines``.

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
        expected = observe(call, baseline, topology)
        difference_text = _outcome_difference(actual, expected, tolerance)
        if difference_text is not None:
            raise AssertionError(_disagreement_text(call, topology, baseline, difference_text))


def same(actual: Any, expected: Any, call: object = "", *, tolerance: float = EXACT) -> None:
    """Fail unless two snapshots, outcomes or tensors are equal; the message shows ``call``."""
    __tracebackhide__ = True
    text = difference(_to_snapshot(actual), _to_snapshot(expected), "result", tolerance)
    if text is not None:
        raise AssertionError(f"{text}\nof the call\n  {call!r}")


def _to_snapshot(value: Any) -> Any:
    return TensorSnapshot(value.detach().cpu(), {}) if isinstance(value, Tensor) else value


def _disagreement_text(
    call: Call, topology: Topology, baseline: Target, difference_text: str
) -> str:
    devices = ", ".join(f"{device}" for device in topology.devices)
    return (
        f"target and {baseline.name} disagree on\n  {call!r}\n"
        f"with devices = [{devices}]:\n  {difference_text}"
    )


def _outcome_difference(actual: Outcome, expected: Outcome, tolerance: float) -> str | None:
    for field in fields(Outcome):
        pair = getattr(actual, field.name), getattr(expected, field.name)
        text = difference(*pair, path=field.name, tolerance=tolerance)
        if text is not None:
            return text
    return None


def difference(actual: Any, expected: Any, path: str, tolerance: float) -> str | None:
    """Describe the first difference between two snapshots. Return None if the snapshots are equal.

    Args:
        actual: The snapshot of the target's value.
        expected: The snapshot to compare with.
        path: The path of the two values. The returned text begins with this path.
        tolerance: The largest difference of numbers, relative and absolute.
    """
    if type(actual) is not type(expected):
        return f"{path} is {_describe(actual)}, expected {_describe(expected)}"
    if isinstance(expected, TensorSnapshot):
        return _tensor_difference(actual, expected, path, tolerance)
    if isinstance(expected, Structure):
        return _structure_difference(actual, expected, path, tolerance)
    if actual != expected:
        return f"{path} is {_describe(actual)}, expected {_describe(expected)}"
    return None


def _tensor_difference(
    actual: TensorSnapshot, expected: TensorSnapshot, path: str, tolerance: float
) -> str | None:
    for name, fact in expected.facts.items():
        if actual.facts.get(name) != fact:
            return f"{path} has {name} {actual.facts.get(name)}, expected {fact}"
    if not _is_close(actual.values, expected.values, tolerance):
        return f"{path} has values {actual.values.tolist()}, expected {expected.values.tolist()}"
    return None


def _is_close(actual: Tensor, expected: Tensor, tolerance: float) -> bool:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    if not (expected.is_floating_point() or expected.is_complex()):
        return torch.equal(actual, expected)
    return torch.allclose(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def _structure_difference(
    actual: Structure, expected: Structure, path: str, tolerance: float
) -> str | None:
    if actual.kind != expected.kind:
        return f"{path} is a {actual.kind}, expected a {expected.kind}"
    if list(actual.members) != list(expected.members):
        return f"{path} has members {list(actual.members)}, expected {list(expected.members)}"
    for key, member in expected.members.items():
        text = difference(actual.members[key], member, f"{path}[{key!r}]", tolerance)
        if text is not None:
            return text
    return None


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
