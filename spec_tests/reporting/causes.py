"""The causes of the failures of a run: failures with one cause are one entry of a list."""

from collections.abc import Collection, Mapping

from spec_tests.failure import Failure
from spec_tests.machine import clauses
from spec_tests.machine.target import REFERENCE
from spec_tests.machine.verdicts import Evidence

#: The cause of failures without a description.
EARLIER = "an earlier suite"


def group_by_cause(
    evidence: Mapping[str, Evidence], violated: Collection[str] = ()
) -> list[tuple[str, list[str]]]:
    """Return causes with the ids of their clauses; the most frequent cause comes first.

    The text of a cause is that of its first clause. If it does not say what is wrong, it begins
    with the part of the specification. A cause whose clauses torch.nn.parallel all violates
    (``violated``) comes after the others.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    for clause, own in evidence.items():
        group = own.failure.group(clause) if own.failure else (EARLIER,)
        if own.failure:  # One failure of a test may fail several clauses.
            group = known.setdefault((own.test, *own.failure.key), group)
        if own.failure and not own.failure.is_bare:  # One text is one cause in its chapter.
            group = known.setdefault((clause.partition(".")[0], own.failure.title), group)
        groups.setdefault(group, []).append(clause)
    ordered = sorted(groups.values(), key=lambda names: ({*names} <= {*violated}, -len(names)))
    return [(_title(names[0], evidence[names[0]].failure), names) for names in ordered]


def _title(clause: str, failure: Failure | None) -> str:
    if failure is None:
        return EARLIER
    part = ".".join(clause.split(".")[:2])
    return f"{part}: {failure.title}" if failure.is_bare else failure.title


def causes_by_title(
    evidence: Mapping[str, Evidence], violated: Collection[str]
) -> dict[str, list[tuple[str, list[str]]]]:
    """Return the causes of the failures of a run, for each title of a list of causes.

    Causes with clauses that torch.nn.parallel passes come before the others. Those whose clauses
    it violates (``violated``), and those of clauses about devices, have a list of their own. The
    list of devices is the first one: a fault of the devices may fail other clauses.
    """
    specification = clauses.load()
    of_devices = {name for name, clause in specification.items() if not clause.is_about_target}
    failures = {name: own for name, own in evidence.items() if own.verdict == "fail"}
    stale = {name: own for name, own in failures.items() if own.is_stale}
    failed = {name: own for name, own in failures.items() if not own.is_stale}
    devices = {name: failed.pop(name) for name in [*failed] if name in of_devices}
    groups = group_by_cause(failed, violated)
    here = failed.keys() - {*violated}
    first = [(text, names) for text, names in groups if here.intersection(names)]
    # The conclusion of a run counts these with the failed clauses.
    is_offered = all(own.verdict != "not-offered" for own in evidence.values())
    note = "" if is_offered else " (without not-offered ones)"
    out_of_date = "tests in the register pass; draft FILE --divergences REGISTER updates it:"
    lists = {
        f"{clauses.format_count(len(devices), 'failed clause')} about devices:": group_by_cause(
            devices
        ),
        out_of_date: [("the recorded tests pass", [*stale])] if stale else [],
        f"{REFERENCE} passes {len(here)} of {len(failed)} failed clauses{note}:": first,
        f"{REFERENCE} violates these, too:": groups[len(first) :],
    }
    return {title: causes for title, causes in lists.items() if causes}
