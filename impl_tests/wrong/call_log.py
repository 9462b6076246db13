"""The calls of public functions by the tests, recorded in a run without a perturbation."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from impl_tests.wrong import DEVICES

__all__ = ["CallLog", "RecordedCall"]


@dataclass(frozen=True)
class RecordedCall:
    """A recorded call.

    Args:
        test: The node id of the test.
        function: The name of the function.
        facts: The facts of the call.
    """

    test: str
    function: str
    facts: frozenset[str]


class CallLog:
    """The recorded calls.

    Args:
        calls: The calls.
        clauses: Node id of each test -> the ids of its clauses.
    """

    def __init__(
        self, calls: Sequence[RecordedCall], clauses: Mapping[str, Sequence[str]]
    ) -> None:
        self._clauses = clauses
        self._by_function: dict[str, list[RecordedCall]] = defaultdict(list)
        for call in calls:
            self._by_function[call.function].append(call)

    @classmethod
    def read(cls, path: Path, clauses: Mapping[str, Sequence[str]]) -> "CallLog":
        """Return the calls in a file that `state.record` has written, and those of `DEVICES`."""
        lines = path.read_text(encoding="utf-8").splitlines()
        of_devices = [test for test, (name, *_) in clauses.items() if name.startswith(DEVICES)]
        calls = [RecordedCall(test, DEVICES, frozenset()) for test in of_devices]
        return cls([*calls, *map(_parse, lines)], clauses)

    def tests(self, function: str, guard: frozenset[str]) -> list[str]:
        """Return the tests that call a function with all facts of a guard."""
        calls = [call for call in self._by_function[function] if guard <= call.facts]
        return list(dict.fromkeys(call.test for call in calls))


def _parse(line: str) -> RecordedCall:
    test, function, facts = line.split("\t")
    return RecordedCall(test, function, frozenset(facts.split()))
