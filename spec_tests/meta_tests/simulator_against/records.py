"""What came of the calls, as data that names no accelerator, and where two records differ."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.outcome import Call, Failure, Outcome, observe
from spec_tests.harness.compare.snapshot import Leaf, Structure, TensorSnapshot
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology

__all__ = ["Difference", "Record", "differences", "record"]

#: What came of each call, by target and the call's text.
Record = Mapping[tuple[str, str], Outcome]
_ONE_SIDE = "drawn on one side only"
#: How many characters of a difference are kept.
_LONGEST = 1500


@dataclass(frozen=True)
class Difference:
    """A call that comes to something else on the two sides.

    Args:
        kind: The function, and what differs: the result, the warnings, ...
        target: The package that was called.
        call: The call, as text.
        text: The first place, in words: what the simulator gives, what was expected.
    """

    kind: str
    target: str
    call: str
    text: str


def record(calls: Iterable[Call], targets: Iterable[Target], topology: Topology) -> Record:
    """Make every call on every target."""
    found, targets = {}, list(targets)
    for call in calls:
        for target in targets:
            outcome = observe(call, target, topology)
            parts = {
                part.name: _neutral(getattr(outcome, part.name), topology.accelerator)
                for part in fields(Outcome)
            }
            found[target.name, repr(call)] = replace(outcome, **parts)
    return found


def differences(simulated: Record, real: Record) -> Iterator[Difference]:
    """The calls that do not come to the same, each with the first difference."""
    for target, call in {**real, **simulated}:
        function = call.partition("(")[0]
        sides = [side.get((target, call)) for side in (simulated, real)]
        if sides[0] is None or sides[1] is None:
            yield Difference(_ONE_SIDE, target, call[:_LONGEST], "")
            continue
        for part in fields(Outcome):
            pair = [getattr(side, part.name) for side in sides]
            text = checks.difference(pair[0], pair[1], part.name, checks.EXACT)
            if text is not None:
                kind = f"{function}: {part.name}"
                yield Difference(kind, target, call[:_LONGEST], text[:_LONGEST])
                break


def _neutral(value: Any, accelerator: str) -> Any:
    """``value`` with the accelerator called ``device`` wherever it is named."""
    match value:
        case str():
            return _renamed(value, accelerator)
        case TensorSnapshot(values, facts):
            return TensorSnapshot(values, _members(facts, accelerator))
        case Structure(kind, members):
            return Structure(kind, _members(members, accelerator))
        case Leaf(kind, text, identity):
            return Leaf(kind, _renamed(text, accelerator), identity)
        case Failure(kind, text):
            return Failure(kind, _renamed(text, accelerator))
        case tuple():
            return tuple(_neutral(each, accelerator) for each in value)
    return value


def _members(members: Mapping[Any, Any], accelerator: str) -> dict[Any, Any]:
    return {key: _neutral(member, accelerator) for key, member in members.items()}


def _renamed(text: str, accelerator: str) -> str:
    text = re.sub(rf"\b{accelerator}\b", "device", text)
    return re.sub(rf"\b{accelerator.upper()}\b", "DEVICE", text)
