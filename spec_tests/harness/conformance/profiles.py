"""Profiles: parts of the specification that a package may claim to conform to."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spec_tests.harness import input_files
from spec_tests.harness.conformance.clauses import VERSION, Clause, suite_version
from spec_tests.harness.conformance.verdicts import VERDICTS

#: The profile of a run without gradients, and the one with all clauses about the target.
FORWARD, FULL = "forward", "full"
_FILE = Path(__file__).with_name("profiles.toml")
_SHAPE = {...: {"clauses?": [str], "without?": [str]}}


def load() -> dict[str, dict[str, list[str]]]:
    """Return ``clauses`` and ``without`` of each profile, by its name."""
    tables: dict[str, dict[str, list[str]]] = input_files.read_toml(_FILE, _SHAPE)
    return tables


def ids(name: str, clauses: Mapping[str, Clause]) -> list[str]:
    """Return the ids of those of ``clauses`` that belong to a profile.

    Raises:
        input_files.RefusedError: There is no such profile.
    """
    known = load()
    if name not in known:
        raise input_files.refuse(f"profile {name}", f"the profiles are {', '.join(known)}")
    named, without = (known[name].get(key, []) for key in ("clauses", "without"))
    return [
        each.id
        for each in clauses.values()
        if each.is_about_target
        and (not named or any(map(each.is_named_by, named)))
        and not any(map(each.has_prefix, without))
    ]


def claim_of_run(
    about: Mapping[str, Any], found: Mapping[str, str], clauses: Mapping[str, Clause]
) -> str:
    """Return `claim` for a saved run with the metadata ``about``."""
    name, suite = about.get("profile", ""), about.get("suite", "")
    if suite == suite_version(clauses):
        return claim(name, found, clauses)
    return f"{name} is not decided: the run is of another suite, {suite}" if name else ""


def claim(name: str, found: Mapping[str, str], clauses: Mapping[str, Clause]) -> str:
    """Return whether a run of this suite conforms to a profile, as a sentence.

    Args:
        name: The name of the profile; an empty text for `FULL` if all its clauses are decided.
        found: The verdict of each clause of the run.
        clauses: All clauses by id.

    Returns:
        The sentence. A run that was cut short has no verdict, and a run of other clauses without a
        profile has no sentence.
    """
    members = ids(name or FULL, clauses)
    title = f"{name or FULL} of suite {VERSION}"
    decided = [found[each] for each in members if each in found]
    if len(decided) < len(members):
        text = (
            f"{title} is not decided: {len(decided)} of its {len(members)} clauses have a verdict"
        )
        return text if name else ""
    counts = Counter(decided)
    listed = ", ".join(f"{counts[each]} {each}" for each in VERDICTS if counts[each])
    verb = "conforms" if counts.keys() <= {"pass", "not-run"} else "does not conform"
    return f"{verb} to {title}: {listed}"
