"""The command ``draft``: print a register with the failures of runs.

A record is for all tests that fail alike: with one error, or with one difference in equal
statements.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from packaging.version import Version

from spec_tests.data_parallel.life import violations
from spec_tests.machine import causes, clauses, input_files, known_failures, register, verdicts
from spec_tests.machine.target import name_in

#: The beginning of the clauses whose tests leave out violations that a register records.
_LIVES = "data_parallel.life."
_WITHOUT_LIVES = f"""\
# The tests of {_LIVES[:-1]} have no record: they leave out violations that a register records.
# Run them with this register, --clause {_LIVES[:-1]} --divergences FILE, and draft what fails.
"""
#: The least number of examples a test with which no warning is printed.
FEW_EXAMPLES = 10
#: A part of the text of a failure that a register does not expect.
_OTHERWISE = ", but the failure is "


def main(options: argparse.Namespace) -> int:
    """Print the register."""
    if not options.file and options.divergences is None:
        raise input_files.RefusedError("draft needs a file of verdicts, or --divergences REGISTER")
    tests: list[dict[str, str]] = []
    for file in options.file:
        run, found = verdicts.read_run(file)
        _warn_of_draft(file, run, found, has_register=options.divergences is not None)
        tests += found
    sources = ", ".join(map(str, options.file))
    print(draft(tests, sources, options.kind, options.divergences))
    return 0


def _warn_of_draft(
    file: Path, run: Mapping[str, Any], tests: list[dict[str, str]], *, has_register: bool
) -> None:
    """Print, also into the draft, which failures of a run the draft may lack."""
    known = sum(test["verdict"] == "known" for test in tests)
    examples = run.get("examples") or FEW_EXAMPLES
    warnings = []
    if run.get("interrupted"):
        warnings.append("the run was interrupted: tests that did not run have no record")
    if examples < FEW_EXAMPLES:
        warnings.append(f"{examples} examples a test: with more, a test may fail in another way")
    if known and not has_register:
        warnings.append(f"{known} known failures: --divergences REGISTER keeps their records")
    for text in warnings:
        print(f"{file}: {text}", file=sys.stderr)
        print(f"# {file}: {text}\n")


def draft(
    tests: Iterable[Mapping[str, str]],
    source: object = "the runs",
    kind: str = "target-bug",
    register_file: Path | None = None,
) -> str:
    """Return the records for the failures of runs as TOML.

    The user then corrects the versions of each record and adds threads.

    Args:
        tests: The tests and their verdicts. Of a test that occurs again, the last one counts.
        source: The file of the verdicts, for the text of an error.
        kind: The kind of the records.
        register_file: The register of the runs. The text begins with the names that it declares
            and its records, without the tests that pass and those that the suite lacks.

    Raises:
        input_files.RefusedError: The suite lacks the clause of a failed test, or the register is
            not valid.
    """
    last = {(test["test"], test["clause"]): test for test in tests if "clause" in test}
    named = [*last.values()]
    failed = [test for test in named if test["verdict"] == "fail" and not _passes(test)]
    known_clauses = clauses.load()
    if unknown := {test["clause"] for test in failed} - known_clauses.keys():
        raise input_files.refuse(source, f"no clause has the name {min(unknown)}")
    lives = [test for test in failed if test["clause"].startswith(_LIVES)]
    if not any(test["clause"] in violations.CLAUSES for test in failed):
        lives = []
    tables = {} if register_file is None else register.read_tables(register_file)
    missing = {name_in(test["reason"]) for test in named if test["verdict"] == "not-offered"}
    lacks = sorted({*tables.pop("lacks", ()), *missing})
    old = [*_without_absent(tables.pop("divergence", []))]
    groups = _group([test for test in failed if test not in lives])
    added = [
        _make_record(f"X-{number}", kind, group, named)
        for number, group in enumerate(groups, _first_number(old))
    ]
    first = {"lacks": lacks} if lacks else {}
    text = _format_register(
        {**first, **tables, "divergence": [*_without_passing(old, named), *added]}
    )
    return f"{_WITHOUT_LIVES}\n{text}" if lives else text


def _passes(test: Mapping[str, str]) -> bool:
    """Return whether a test fails because it passes although a record expects its failure."""
    return known_failures.PASSES in test.get("difference", "")


def _without_absent(records: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the records without the tests that the suite no longer has, and print these tests."""
    for record in records:
        left = [
            test for test in record["tests"] if known_failures.is_defined(test, clauses.SOURCE)
        ]
        for test in record["tests"]:
            if test not in left:
                print(f"{record['id']}: left out, no such test: {test}", file=sys.stderr)
        if left:
            yield {**record, "tests": left}


def _without_passing(
    records: Iterable[Mapping[str, Any]], tests: Iterable[Mapping[str, str]]
) -> Iterator[Mapping[str, Any]]:
    """Yield the records without the tests that pass, unless all tests of a record do.

    If a test passes with some of its parameters, the record names those with which it fails.
    """
    judged = [test for test in tests if test["verdict"] in ("fail", "known")]
    passing = {_node_id(test) for test in judged if _passes(test)}
    failing = {_node_id(test) for test in judged} - passing
    for record in records:
        left = [name for test in record["tests"] for name in _left(test, passing, failing)]
        if left:
            yield {**record, "tests": left}


def _left(test: str, passing: Collection[str], failing: Collection[str]) -> Collection[str]:
    """Return the entries that replace the entry ``test`` of a record."""

    def is_of_test(name: str) -> bool:
        return test in (name, name.partition("[")[0])

    return sorted(filter(is_of_test, failing)) if any(map(is_of_test, passing)) else [test]


def _first_number(records: Iterable[Mapping[str, Any]]) -> int:
    numbers = [re.fullmatch(r"X-(\d+)", record["id"]) for record in records]
    return 1 + max((int(each[1]) for each in numbers if each), default=0)


def _group(failed: Iterable[Mapping[str, str]]) -> Collection[list[Mapping[str, str]]]:
    """Return the tests of each record: those that fail alike."""
    found: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    for test in sorted(failed, key=lambda each: each["clause"]):
        found[_difference(test)].append(test)
    return found.values()


def _difference(test: Mapping[str, str]) -> str:
    reason = test.get("reason", "").partition("\n")[0]
    return test.get("differs") or test.get("failure") or reason


def _make_record(
    divergence_id: str,
    kind: str,
    failed_tests: list[Mapping[str, str]],
    tests: Iterable[Mapping[str, str]],
) -> dict[str, Any]:
    """Return a record for failed tests.

    Args:
        divergence_id: The id of the record.
        kind: The kind of the record.
        failed_tests: The tests of the record.
        tests: All tests of the run.
    """
    names = _deduplicate(test["clause"] for test in failed_tests)
    differences = _deduplicate(map(_difference, failed_tests))
    others = {
        _without_parameters(_node_id(test))
        for test in tests
        if test["verdict"] != "fail" or _difference(test) not in differences
    }
    return {
        "id": divergence_id,
        "kind": kind,
        "clause": names[0] if len(names) == 1 else names,
        "tests": _deduplicate(_recorded_test(_node_id(test), others) for test in failed_tests),
        "differences": differences,
        "observed": _observed(failed_tests[0]),
        "reason": "drafted, not examined",
        "versions": f"torch>={Version(torch.__version__).base_version}",
    }


def _observed(test: Mapping[str, str]) -> str:
    """Return the difference of the first test, and its smallest failing call."""
    text = test.get("difference", test.get("reason", ""))
    if _OTHERWISE in text:  # a register expected another failure
        text = _difference(test)
    call = test.get("call", "").partition("\n")[0]
    return f"{causes.find_cause(text)}{f' in {call}' if call else ''}"


def _node_id(test: Mapping[str, str]) -> str:
    return test["test"].removeprefix("spec_tests/")


def _recorded_test(node_id: str, others: Collection[str]) -> str:
    """Return a test's id for a record. Keep the parameters only if others do not fail so."""
    without = _without_parameters(node_id)
    return node_id if without in others else without


def _without_parameters(node_id: str) -> str:
    return node_id.split("[", 1)[0]


def _deduplicate(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _format_register(tables: Mapping[str, Any]) -> str:
    """Return the text of a register with these tables."""
    inner = ("titles", "divergence")
    parts = [_format_table({name: each for name, each in tables.items() if name not in inner})]
    if "titles" in tables:
        parts.append(f"[titles]\n{_format_table(tables['titles'])}")
    parts += [f"[[divergence]]\n{_format_table(each)}" for each in tables.get("divergence", ())]
    return "\n".join(filter(None, parts))


def _format_table(table: Mapping[str, Any]) -> str:
    return "".join(f"{name} = {_format(value)}\n" for name, value in table.items())


def _format(value: str | Sequence[str]) -> str:
    """Return a string or list as TOML. JSON strings are valid TOML, except for DEL."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return "".join(["[\n", *(f"    {_format(each)},\n" for each in value), "]"])
