"""The command ``draft``: print a register with the failures of runs.

A record is for all tests that fail alike: with one error, or with one difference in equal
statements.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import torch
from packaging.version import Version

from spec_tests.cli.register_text import format_toml, with_lacks, without_passing
from spec_tests.data_parallel.life import violations
from spec_tests.harness import input_files
from spec_tests.harness.conformance import causes, clause_filter, clauses, known_failures, verdicts

#: The beginning of the clauses whose tests leave out violations that a register records.
_LIVES = "data_parallel.life."
_WITHOUT_LIVES = f"""\
# The tests of {_LIVES[:-1]} have no record: they leave out violations that a register records.
# Run them with this register, --clause {_LIVES[:-1]} --divergences FILE, and draft what fails.
"""
#: A part of the text of a failure that a register does not expect.
_OTHERWISE = ", but the failure is "
_RECORD = """\
[[divergence]]
id = {id}
kind = {kind}
clause = {clause}
tests = {tests}
differences = {differences}
observed = {observed}
reason = {reason}
versions = {versions}
"""


def draft(
    tests: Iterable[Mapping[str, str]],
    source: object = "the runs",
    kind: str = "target-bug",
    register: Path | None = None,
) -> str:
    """Return the records for the failures of runs as TOML.

    The user then corrects the versions of each record and adds threads.

    Args:
        tests: The tests and their verdicts. Of a test that occurs again, the last one counts.
        source: The file of the verdicts, for the text of an error.
        kind: The kind of the records.
        register: The register of the runs. The text begins with its records, without the tests
            that pass.

    Raises:
        input_files.RefusedError: The suite lacks the clause of a failed test, or a list of the
            register that changes is not on lines of its own.
    """
    last = {(test["test"], test["clause"]): test for test in tests if "clause" in test}
    named = [*last.values()]
    failed = [test for test in named if test["verdict"] == "fail" and not _passes(test)]
    if unknown := {test["clause"] for test in failed} - clauses.load().keys():
        raise input_files.refuse(source, f"no clause has the name {min(unknown)}")
    lives = [test for test in failed if test["clause"].startswith(_LIVES)]
    if not any(test["clause"] in violations.CLAUSES for test in failed):
        lives = []
    head, first = _head(named) if register is None else _updated(register, named)
    groups = _group([test for test in failed if test not in lives])
    records = [
        _format_record(f"X-{number}", kind, group, named)
        for number, group in enumerate(groups, first)
    ]
    return "\n".join([*([_WITHOUT_LIVES] if lives else []), *head, *records])


def _passes(test: Mapping[str, str]) -> bool:
    """Return whether a test fails because it passes although a record expects its failure."""
    return known_failures.PASSES in test.get("difference", "")


def _head(tests: Sequence[Mapping[str, str]]) -> tuple[list[str], int]:
    """Return the text before the records of a new register, and the number of the first one."""
    lacks = _shorten_lacks({test["clause"] for test in tests if test["verdict"] == "not-offered"})
    return [f"lacks = {format_toml(lacks)}\n"] if lacks else [], 1


def _updated(register: Path, tests: Sequence[Mapping[str, str]]) -> tuple[list[str], int]:
    """Return a register without the tests that pass, and the number of the first new record."""
    recorded: dict[bool, set[str]] = {True: set(), False: set()}  # whether a test passes
    for test in tests:
        if test["verdict"] in ("fail", "known"):
            recorded[_passes(test)].add(test["test"].removeprefix("spec_tests/"))
    undeclared = [test for test in tests if test["verdict"] == "not-offered"]
    lacks = _shorten_lacks({test["clause"] for test in undeclared if verdicts.fails_run(test)})
    old = without_passing(register, recorded[True], recorded[False])
    numbers = re.findall(r'^id = "X-(\d+)"', input_files.read_text(register), re.MULTILINE)
    return [with_lacks(register, old, lacks).rstrip() + "\n"], 1 + max(
        map(int, numbers), default=0
    )


def _group(failed: Iterable[Mapping[str, str]]) -> Collection[list[Mapping[str, str]]]:
    """Return the tests of each record: those that fail alike."""
    found: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    for test in sorted(failed, key=lambda each: each["clause"]):
        found[_difference(test)].append(test)
    return found.values()


def _shorten_lacks(missing: Collection[str]) -> list[str]:
    """Return the shortest beginnings of ids that begin only clauses in ``missing``."""
    others = {*clause_filter.beginnings(clauses.load().keys() - missing)}
    return sorted(
        {
            next(each for each in clause_filter.beginnings([name]) if each not in others)
            for name in missing
        }
    )


def _difference(test: Mapping[str, str]) -> str:
    reason = test.get("reason", "").partition("\n")[0]
    return test.get("differs") or test.get("failure") or reason


def _format_record(
    divergence_id: str,
    kind: str,
    failed_tests: list[Mapping[str, str]],
    tests: Iterable[Mapping[str, str]],
) -> str:
    """Return a record as TOML for failed tests.

    Args:
        divergence_id: The id of the record.
        kind: The kind of the record.
        failed_tests: The tests of the record.
        tests: All tests of the run.
    """
    names = _deduplicate(test["clause"] for test in failed_tests)
    differences = _deduplicate(map(_difference, failed_tests))
    others = {
        _without_parameters(test["test"])
        for test in tests
        if test["verdict"] != "fail" or _difference(test) not in differences
    }
    fields = {
        "id": divergence_id,
        "kind": kind,
        "clause": names[0] if len(names) == 1 else names,
        "tests": _deduplicate(_recorded_test(test["test"], others) for test in failed_tests),
        "differences": differences,
        "observed": _observed(failed_tests[0]),
        "reason": "drafted, not examined",
        "versions": f"torch>={Version(torch.__version__).base_version}",
    }
    return _RECORD.format(**{key: format_toml(value) for key, value in fields.items()})


def _observed(test: Mapping[str, str]) -> str:
    """Return the difference of the first test, and its smallest failing call."""
    text = test.get("difference", test.get("reason", ""))
    if _OTHERWISE in text:  # a register expected another failure
        text = _difference(test)
    call = test.get("call", "").partition("\n")[0]
    return f"{causes.find_cause(text)}{f' in {call}' if call else ''}"


def _recorded_test(node_id: str, others: Collection[str]) -> str:
    """Return a test's id for a record. Keep the parameters only if others do not fail so."""
    without = _without_parameters(node_id)
    return node_id.removeprefix("spec_tests/") if without in others else without


def _without_parameters(node_id: str) -> str:
    return node_id.removeprefix("spec_tests/").split("[", 1)[0]


def _deduplicate(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
