"""The table of verdicts, and the texts of bad verdicts."""

from collections import Counter
from collections.abc import Iterable

from .trial import TrialResult
from .verdicts import BAD, VERDICTS

__all__ = ["Tally"]


class Tally:
    """Counts of verdicts by kind of fault.

    Attributes:
        bad: The number of bad verdicts.
        trials: The number of trials.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self.bad = self.trials = 0

    def add(self, result: TrialResult) -> Iterable[str]:
        """Count the verdicts of a trial. Return a text for each bad verdict."""
        self.trials += 1
        for finding in result.findings:
            self._counts[finding.kind, finding.verdict] += 1
        bad = [finding for finding in result.findings if finding.verdict in BAD]
        self.bad += len(bad)
        return [
            f"{finding.verdict} (--kinds {result.kind} --seed {result.seed} --count 1)\n"
            f"  {result.log.strip()}\n  {finding.detail}"
            for finding in bad
        ]

    @property
    def injected(self) -> int:
        """The number of faults that occurred."""
        return sum(n for (_, verdict), n in self._counts.items() if verdict != "not reached")

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """The numbers of verdicts: kind of fault -> verdict -> number."""
        found: dict[str, dict[str, int]] = {}
        for (kind, verdict), number in sorted(self._counts.items()):
            found.setdefault(kind, {})[verdict] = number
        return found

    def format(self) -> str:
        """Return the table: a row for each kind of fault, a column for each verdict."""
        kinds = sorted({kind for kind, _ in self._counts})
        width = max(map(len, [*kinds, "all"]))
        rows = [" " * width + "".join(f"{verdict:>14}" for verdict in VERDICTS)]
        for kind in [*kinds, "all"]:
            counts = [self._count(kind, verdict) for verdict in VERDICTS]
            rows.append(f"{kind:{width}}" + "".join(f"{count:14}" for count in counts))
        return "\n".join(rows)

    def _count(self, kind: str, verdict: str) -> int:
        if kind == "all":
            return sum(n for (_, name), n in self._counts.items() if name == verdict)
        return self._counts[kind, verdict]
