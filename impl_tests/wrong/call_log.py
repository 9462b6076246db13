"""The calls of public functions by the tests, recorded in a run without a perturbation."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

__all__ = ["CallLog", "RecordedCall"]

#: The largest number of facts in a proposed guard.
_MAX_FACTS = 3


@dataclass(frozen=True)
class RecordedCall:
    """A recorded call.

    Args:
        test: The node id of the test.
        function: The name of the function.
        facts: The facts of the call.
        outcome: The facts of the outcome.
    """

    test: str
    function: str
    facts: frozenset[str]
    outcome: frozenset[str]


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
        self._by_clause: dict[str, list[RecordedCall]] = defaultdict(list)
        for call in calls:
            self._by_function[call.function].append(call)
            for name in clauses.get(call.test, ()):
                self._by_clause[name].append(call)

    @classmethod
    def read(cls, path: Path, clauses: Mapping[str, Sequence[str]]) -> "CallLog":
        """Return the calls in a file that `state.record` has written."""
        lines = path.read_text(encoding="utf-8").splitlines()
        return cls([_parse(line) for line in lines], clauses)

    def functions(self, clause: str) -> list[str]:
        """Return the functions that the tests of a clause call."""
        return list(dict.fromkeys(call.function for call in self._by_clause[clause]))

    def calls(self, clause: str, function: str, guard: frozenset[str]) -> list[RecordedCall]:
        """Return the calls by a clause's tests of a function with all facts of a guard."""
        return [
            call
            for call in self._by_clause[clause]
            if call.function == function and guard <= call.facts
        ]

    def reached(self, function: str, guard: frozenset[str] = frozenset()) -> set[str]:
        """Return the clauses whose tests call a function with all facts of a guard."""
        return {
            name
            for call in self._by_function[function]
            if guard <= call.facts
            for name in self._clauses.get(call.test, ())
        }

    def tests(self, function: str, guard: frozenset[str]) -> list[str]:
        """Return the tests that call a function with all facts of a guard."""
        calls = [call for call in self._by_function[function] if guard <= call.facts]
        return list(dict.fromkeys(call.test for call in calls))

    def limit(self, function: str) -> int:
        """Return the largest number of clauses that a perturbation of a function may fail."""
        return -(-len(self.reached(function)) // 10)

    def guards(self, clause: str, function: str) -> Iterator[frozenset[str]]:
        """Yield guards that few clauses reach, best first.

        Guards that a tenth of the function's clauses reach come first, then those with few facts,
        then those that many of the clause's calls have.
        """
        limit = self.limit(function)
        calls = self.calls(clause, function, frozenset())
        found: dict[frozenset[str], tuple[object, ...]] = {}
        for call in calls[:60]:
            narrow = sorted(call.facts, key=lambda fact: len(self._having(function, fact)))[:9]
            for count in range(_MAX_FACTS + 1):
                for facts in combinations(narrow, count):
                    guard = frozenset(facts)
                    if guard in found:
                        continue
                    reach = self._reach(function, guard)
                    share = sum(guard <= other.facts for other in calls) / len(calls)
                    found[guard] = (max(reach - limit, 0), count, -share, reach, sorted(guard))
        yield from sorted(found, key=found.__getitem__)

    @cache  # noqa: B019 - the log lives as long as the process
    def _having(self, function: str, fact: str) -> frozenset[int]:
        calls = self._by_function[function]
        return frozenset(index for index, call in enumerate(calls) if fact in call.facts)

    def _reach(self, function: str, guard: frozenset[str]) -> int:
        if not guard:
            return len(self.reached(function))
        indices = frozenset.intersection(*(self._having(function, fact) for fact in guard))
        calls = self._by_function[function]
        return len({name for i in indices for name in self._clauses.get(calls[i].test, ())})


def _parse(line: str) -> RecordedCall:
    test, function, facts, outcome = line.split("\t")
    return RecordedCall(test, function, frozenset(facts.split()), frozenset(outcome.split()))
