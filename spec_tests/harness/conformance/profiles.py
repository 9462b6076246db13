"""Profiles: parts of the specification that a package may claim to conform to."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from spec_tests.harness import input_files
from spec_tests.harness.conformance.clauses import VERSION, Clause
from spec_tests.harness.conformance.verdicts import VERDICTS

__all__ = ["FORWARD", "FULL", "Profile", "claim", "find", "load"]

#: The profile of a run without gradients, and the one with all clauses about the target.
FORWARD, FULL = "forward", "full"
_FILE = Path(__file__).with_name("profiles.toml")
_SHAPE = {...: {"says": str, "clauses?": [str], "without?": [str]}}


@dataclass(frozen=True)
class Profile:
    """A part of the clauses about the target.

    Args:
        name: Its name.
        says: The calls that it is about.
        clauses: Chapters, or beginnings of ids; empty for all clauses.
        without: Beginnings of the ids that it leaves out.
    """

    name: str
    says: str
    clauses: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def includes(self, clause: Clause) -> bool:
        """Return whether a clause belongs to the profile."""
        named = not self.clauses or any(map(clause.is_named_by, self.clauses))
        return clause.is_about_target and named and not any(map(clause.has_prefix, self.without))

    def ids(self, clauses: Iterable[Clause]) -> list[str]:
        """Return the ids of those of ``clauses`` that belong to the profile."""
        return [each.id for each in clauses if self.includes(each)]


def load() -> dict[str, Profile]:
    """Return the profiles by name."""
    tables = input_files.read_toml(_FILE, _SHAPE)
    return {
        name: Profile(
            name, each["says"], tuple(each.get("clauses", ())), tuple(each.get("without", ()))
        )
        for name, each in tables.items()
    }


def find(name: str) -> Profile:
    """Return the profile with a name.

    Raises:
        input_files.RefusedError: There is none.
    """
    known = load()
    if name not in known:
        raise input_files.refuse(f"profile {name}", f"the profiles are {', '.join(known)}")
    return known[name]


def claim(name: str, found: Mapping[str, str], clauses: Mapping[str, Clause]) -> str:
    """Return whether a run conforms to a profile, as a sentence.

    Args:
        name: The name of the profile; an empty text for `FULL` if all its clauses are decided.
        found: The verdict of each clause of the run.
        clauses: All clauses by id.

    Returns:
        The sentence. A run that was cut short has no verdict, and a run of other clauses without a
        profile has no sentence.
    """
    ids = find(name or FULL).ids(clauses.values())
    title = f"{name or FULL} of suite {VERSION}"
    decided = [found[each] for each in ids if each in found]
    if len(decided) < len(ids):
        text = f"{title} is not decided: {len(decided)} of {len(ids)} clauses have a verdict"
        return text if name else ""
    counts = Counter(decided)
    listed = ", ".join(f"{counts[each]} {each}" for each in VERDICTS if counts[each])
    verb = "conforms" if counts.keys() <= {"pass", "not-run"} else "does not conform"
    return f"{verb} to {title}: {listed}"
