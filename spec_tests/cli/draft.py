"""The command ``draft``: print a register with the failures of runs.

A record is for all tests that fail alike: with one error, or with one difference in equal
statements.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

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
{program}versions = {versions}
"""


def draft(
    tests: Iterable[Mapping[str, str]],
    source: object = "the runs",
    kind: str = "target-bug",
    programs: Mapping[str, str] = MappingProxyType({}),
    register: Path | None = None,
) -> str:
    """Return the records for the failures of runs as TOML.

    The user then corrects the versions of each record and adds threads.

    Args:
        tests: The tests and their verdicts. Of a test that occurs again, the last one counts.
        source: The file of the verdicts, for the text of an error.
        kind: The kind of the records without a program. The others have the kind back-end-bug.
        programs: Programs in plain PyTorch that show the causes of failures.
        register: The register of the runs. The text begins with its records, without the tests
            that pass.

    Raises:
        input_files.RefusedError: The suite lacks the clause of a failed test, or the tests of a
            record are not written as ``tests = […]``.
    """
    last = {(test["test"], test["clause"]): test for test in tests if "clause" in test}
    named = [test for test in last.values() if "::" in test["test"]]  # others are of a register
    failed: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    recorded: dict[bool, set[str]] = {True: set(), False: set()}  # whether a test passes
    for test in named:
        passes = known_failures.PASSES in test.get("difference", "")
        if test["verdict"] == "fail" and not passes:
            failed[test["clause"]].append(test)
        if test["verdict"] in ("fail", "known"):
            recorded[passes].add(test["test"].removeprefix("spec_tests/"))
    if unknown := failed.keys() - clauses.load():
        raise input_files.refuse(source, f"no clause has the name {min(unknown)}")
    header = []
    if failed.keys() & violations.CLAUSES:
        lives = [name for name in failed if name.startswith(_LIVES)]
        failed = {name: found for name, found in failed.items() if name not in lives}
        header += [_WITHOUT_LIVES] if lives else []
    missing = [test for test in named if test["verdict"] == "not-offered"]
    if register is None:
        first = 1
        lacks = _shorten_lacks({test["clause"] for test in missing})
        header += [f"lacks = {format_toml(lacks)}\n"] if lacks else []
    else:
        lacks = _shorten_lacks({test["clause"] for test in missing if verdicts.fails_run(test)})
        old = without_passing(register, recorded[True], recorded[False])
        numbers = re.findall(r'^id = "X-(\d+)"', input_files.read_text(register), re.MULTILINE)
        first = 1 + max(map(int, numbers), default=0)
        header += [with_lacks(old, lacks).rstrip() + "\n"]
    by_cause: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    by_difference: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    # A wrong value may have another cause in each test.
    known = {causes.key_of(cause): cause for cause in programs if causes.is_error(cause)}
    for _, found in sorted(failed.items()):
        for test in found:
            cause = known.get(_cause_key(test))
            if cause is None:
                by_difference[_difference(test)].append(test)
            else:
                by_cause[cause].append(test)
    of_causes = [("back-end-bug", found, programs[cause]) for cause, found in by_cause.items()]
    of_clauses = [(kind, found, "") for found in by_difference.values()]
    records = [
        _format_record(f"X-{number}", *each, named)
        for number, each in enumerate([*of_causes, *of_clauses], first)
    ]
    return "\n".join([*header, *records])


def _cause_key(test: Mapping[str, str]) -> str:
    return causes.key_of(causes.find_cause(test.get("difference", test.get("reason", ""))))


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
    program: str,
    tests: Iterable[Mapping[str, str]],
) -> str:
    """Return a record as TOML for failed tests.

    Args:
        divergence_id: The id of the record.
        kind: The kind of the record.
        failed_tests: The tests of the record.
        program: A program in plain PyTorch that shows the failure, or an empty text.
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
    texts = {key: format_toml(value) for key, value in fields.items()}
    # A program has no triple quotes: it has names, numbers and devices only.
    return _RECORD.format(**texts, program=f"program = '''\n{program}'''\n" if program else "")


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
