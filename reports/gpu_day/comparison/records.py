"""Records of call outcomes without the name of the accelerator, and their differences."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.outcome import Call, Failure, Outcome, observe
from spec_tests.harness.compare.snapshot import Leaf, Structure, TensorSnapshot
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology

__all__ = ["Difference", "Record", "find_differences", "record_outcomes"]

#: The outcome of each call, by the name of the target and the text of the call.
Record = Mapping[tuple[str, str], Outcome]
_MISSING = "missing from one record"
#: Maximum number of characters of the text of a call or of a difference.
_MAX_CHARACTERS = 1500


@dataclass(frozen=True)
class Difference:
    """A call whose outcome on the simulator and on the accelerator differs.

    Args:
        kind: The called function, and what differs: result, warnings, gradients or inputs. If one
            record lacks the call, the kind is "missing from one record".
        target: The package that was called.
        call: The call, as text.
        text: The first difference, described in words.
    """

    kind: str
    target: str
    call: str
    text: str


def record_outcomes(
    calls: Iterable[Call], targets: Iterable[Target], topology: Topology
) -> Record:
    """Run every call on every target and return the outcomes."""
    outcomes, targets = {}, list(targets)
    for call in calls:
        for target in targets:
            outcome = observe(call, target, topology)
            parts = {
                part.name: _replace_accelerator(getattr(outcome, part.name), topology.accelerator)
                for part in fields(Outcome)
            }
            outcomes[target.name, repr(call)] = replace(outcome, **parts)
    return outcomes


def find_differences(simulated: Record, real: Record) -> Iterator[Difference]:
    """Yield the calls whose outcomes differ, each with its first difference."""
    for target, call in {**real, **simulated}:
        function = call.partition("(")[0]
        outcomes = [record.get((target, call)) for record in (simulated, real)]
        if outcomes[0] is None or outcomes[1] is None:
            yield Difference(_MISSING, target, call[:_MAX_CHARACTERS], "")
            continue
        for part in fields(Outcome):
            pair = [getattr(outcome, part.name) for outcome in outcomes]
            text = checks.difference(pair[0], pair[1], part.name, checks.EXACT)
            if text is not None:
                kind = f"{function}: {part.name}"
                yield Difference(kind, target, call[:_MAX_CHARACTERS], text[:_MAX_CHARACTERS])
                break


def _replace_accelerator(value: Any, accelerator: str) -> Any:
    """Return ``value`` with the name of the accelerator replaced by ``device``."""
    match value:
        case str():
            return _replace_in_text(value, accelerator)
        case TensorSnapshot(values, facts):
            return TensorSnapshot(values, _replace_in_members(facts, accelerator))
        case Structure(kind, members):
            return Structure(kind, _replace_in_members(members, accelerator))
        case Leaf(kind, text, identity):
            return Leaf(kind, _replace_in_text(text, accelerator), identity)
        case Failure(kind, text):
            return Failure(kind, _replace_in_text(text, accelerator))
        case tuple():
            return tuple(_replace_accelerator(each, accelerator) for each in value)
    return value


def _replace_in_members(members: Mapping[Any, Any], accelerator: str) -> dict[Any, Any]:
    return {key: _replace_accelerator(member, accelerator) for key, member in members.items()}


def _replace_in_text(text: str, accelerator: str) -> str:
    text = re.sub(rf"\b{accelerator}\b", "device", text)
    return re.sub(rf"\b{accelerator.upper()}\b", "DEVICE", text)
