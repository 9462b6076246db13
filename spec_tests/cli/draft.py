"""The command ``draft``: print a register with the failures of runs.

Each new record is one line of the list ``drafted``, for a test and the facts that fail in it.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spec_tests.data_parallel.life import violations
from spec_tests.failure import SUITE, Failure
from spec_tests.machine import clauses, input_files, judge, register, verdicts
from spec_tests.machine.verdicts import TestVerdict

#: The beginning of the clauses whose tests leave out violations that a register records.
_LIVES = "data_parallel.life."
_WITHOUT_LIVES = f"""\
# The tests of {_LIVES[:-1]} have no record: they leave out violations that a register records.
# Run them with this register, --clause {_LIVES[:-1]} --divergences FILE, and draft what fails.
"""
_DRAFTED = """\
# Not examined: a line for each test. To explain one, make it a table [[divergence]] with
# `observed` and `reason`.
"""
#: The least number of examples a test with which no warning is printed.
FEW_EXAMPLES = 10
#: The length of a line of a register.
_LINE = 99


def main(options: argparse.Namespace) -> int:
    """Print the register."""
    if not options.file and options.divergences is None:
        raise input_files.RefusedError("draft needs a file of verdicts, or --divergences REGISTER")
    tests: list[TestVerdict] = []
    for file in options.file:
        run, found = verdicts.read_run(file)
        _warn_of_draft(file, run, found, has_register=options.divergences is not None)
        tests += found
    sources = ", ".join(map(str, options.file))
    print(draft(tests, sources, options.kind, options.divergences))
    return 0


def _warn_of_draft(
    file: Path, run: Mapping[str, Any], tests: list[TestVerdict], *, has_register: bool
) -> None:
    """Print, also into the draft, which failures of a run the draft may lack."""
    known = sum(test.verdict == "known" for test in tests)
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
    tests: Iterable[TestVerdict],
    source: object = "the runs",
    kind: str = "target-bug",
    register_file: Path | None = None,
) -> str:
    """Return the records for the failures of runs as TOML.

    The user then corrects the versions of each record and adds threads.

    Args:
        tests: The tests and their verdicts. Of a test that occurs again, the last verdict counts,
            with the facts of all its failures.
        source: The file of the verdicts, for the text of an error.
        kind: The kind of the records.
        register_file: The register of the runs. The text begins with the names that it declares
            and its records, without the tests that pass and those that the suite lacks. A record
            of an earlier suite gets the facts of its tests.

    Raises:
        input_files.RefusedError: The suite lacks the clause of a failed test, or the register is
            not valid.
    """
    last = {(test.test, test.clause): test for test in tests if test.clause}
    named = [*last.values()]
    failed = [test for test in named if test.verdict == "fail" and not _passes(test)]
    known_clauses = clauses.load()
    if unknown := {test.clause for test in failed} - known_clauses.keys():
        raise input_files.refuse(source, f"no clause has the name {min(unknown)}")
    tables = {} if register_file is None else register.read_tables(register_file)
    missing = {fact.name for test in named if (fact := _missing_name(test)) is not None}
    lacks = sorted({*tables.pop("lacks", ()), *missing})
    lists = {
        key: [_convert(each, failed) for each in _without_absent(tables.pop(key, []))]
        for key in ("drafted", "divergence")
    }
    old = [each for records in lists.values() for each in records]
    failed = [test for test in failed if not any(_expects(each, test) for each in old)]
    lives = [test for test in failed if test.clause.startswith(_LIVES)]
    if not any(test.clause in violations.CLAUSES for test in failed):
        lives = []
    groups = _group([test for test in failed if test not in lives])
    added = [
        _make_record(f"X-{number}", kind, group, named)
        for number, group in enumerate(groups, _first_number(old))
    ]
    first = {"lacks": lacks} if lacks else {}
    kept = {key: [*_without_passing(records, named)] for key, records in lists.items()}
    kept["drafted"] += added
    text = _format_register({**first, **tables, **kept})
    return f"{_WITHOUT_LIVES}\n{text}" if lives else text


def _passes(test: TestVerdict) -> bool:
    """Return whether a test fails because it passes although a record expects its failure."""
    return test.failure is not None and test.failure.kind == "stale-record"


def _missing_name(test: TestVerdict) -> Any:
    """Return the fact about the name that a test lacks; None for another test."""
    if test.verdict != "not-offered" or test.failure is None:
        return None
    return test.failure.facts[0]


def _convert(entry: Mapping[str, Any], failed: Iterable[TestVerdict]) -> Mapping[str, Any]:
    """Return a record of an earlier suite with the facts of its failed tests."""
    if entry.get("expects"):
        return entry
    found = [test.failure for test in failed if _names(entry, test) and test.failure]
    if not found:
        print(f"{entry['id']}: no test of this record fails in the runs", file=sys.stderr)
    facts = _deduplicate(fact for each in found for fact in each.expected)
    items = [*entry.items()]
    place = [*entry].index("tests") + 1
    return dict([*items[:place], *([("expects", facts)] if facts else []), *items[place:]])


def _expects(entry: Mapping[str, Any], test: TestVerdict) -> bool:
    """Return whether a record, which may have been converted, expects the failure of a test."""
    found = test.failure
    return (
        found is not None
        and _names(entry, test)
        and {*found.expected} <= {*entry.get("expects", ())}
    )


def _names(entry: Mapping[str, Any], test: TestVerdict) -> bool:
    return any(_is_of(_node_id(test), name) for name in entry["tests"])


def _is_of(node_id: str, name: str) -> bool:
    """Return whether an entry ``name`` of a record stands for a test."""
    return name in (node_id, judge.without_parameters(node_id))


def _without_absent(records: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the records without the tests that the suite no longer has, and print these tests."""
    for each in records:
        left = [test for test in each["tests"] if judge.is_defined(test, SUITE)]
        for test in each["tests"]:
            if test not in left:
                print(f"{each['id']}: left out, no such test: {test}", file=sys.stderr)
        if left:
            yield {**each, "tests": left}


def _without_passing(
    records: Iterable[Mapping[str, Any]], tests: Iterable[TestVerdict]
) -> Iterator[Mapping[str, Any]]:
    """Yield the records without the tests that pass, unless all tests of a record do.

    If a test passes with some of its parameters, the record names those with which it fails.
    """
    judged = [test for test in tests if test.verdict in ("fail", "known")]
    passing = {_node_id(test) for test in judged if _passes(test)}
    failing = {_node_id(test) for test in judged} - passing
    for each in records:
        left = [name for test in each["tests"] for name in _left(test, passing, failing)]
        if left:
            yield {**each, "tests": left}


def _left(test: str, passing: Collection[str], failing: Collection[str]) -> Collection[str]:
    """Return the entries that replace the entry ``test`` of a record."""
    passes = any(_is_of(name, test) for name in passing)
    return sorted(name for name in failing if _is_of(name, test)) if passes else [test]


def _first_number(records: Iterable[Mapping[str, Any]]) -> int:
    numbers = [re.fullmatch(r"X-(\d+)", each["id"]) for each in records]
    return 1 + max((int(each[1]) for each in numbers if each), default=0)


def _group(failed: Iterable[TestVerdict]) -> Collection[list[TestVerdict]]:
    """Return the tests of each record: those of one function that fail alike."""
    found: dict[tuple[str, ...], list[TestVerdict]] = defaultdict(list)
    for test in sorted(failed, key=lambda each: each.clause):
        found[judge.without_parameters(_node_id(test)), *_failure(test).key].append(test)
    return found.values()


def _failure(test: TestVerdict) -> Failure:
    return test.failure or Failure("error", (), "")


def _make_record(
    divergence_id: str, kind: str, failed_tests: list[TestVerdict], tests: Iterable[TestVerdict]
) -> dict[str, Any]:
    """Return a record for failed tests.

    Args:
        divergence_id: The id of the record.
        kind: The kind of the record.
        failed_tests: The tests of the record.
        tests: All tests of the run.
    """
    names = _deduplicate(test.clause for test in failed_tests)
    found = _failure(failed_tests[0])
    others = {
        judge.without_parameters(_node_id(test))
        for test in tests
        if test.verdict != "fail" or _failure(test).key != found.key
    }
    return {
        "id": divergence_id,
        **({} if kind == register.DRAFTED_KIND else {"kind": kind}),
        "clause": names[0] if len(names) == 1 else names,
        "tests": _deduplicate(_recorded_test(_node_id(test), others) for test in failed_tests),
        "expects": found.expected,
    }


def _node_id(test: TestVerdict) -> str:
    return test.test.removeprefix("spec_tests/")


def _recorded_test(node_id: str, others: Collection[str]) -> str:
    """Return a test's id for a record. Keep the parameters only if others do not fail so."""
    without = judge.without_parameters(node_id)
    return node_id if without in others else without


def _deduplicate(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _format_register(tables: Mapping[str, Any]) -> str:
    """Return the text of a register with these tables."""
    inner = ("titles", "drafted", "divergence")
    parts = [_format_table({name: each for name, each in tables.items() if name not in inner})]
    if tables.get("drafted"):
        lines = (f"    {_format_inline(each)},\n" for each in tables["drafted"])
        parts.append(f"{_DRAFTED}drafted = [\n{''.join(lines)}]\n")
    if "titles" in tables:
        parts.append(f"[titles]\n{_format_table(tables['titles'])}")
    parts += [f"[[divergence]]\n{_format_table(each)}" for each in tables.get("divergence", ())]
    return "\n".join(filter(None, parts))


def _format_inline(table: Mapping[str, Any]) -> str:
    pairs = (f"{name} = {_format_line(value)}" for name, value in table.items())
    return f"{{ {', '.join(pairs)} }}"


def _format_table(table: Mapping[str, Any]) -> str:
    return "".join(f"{name} = {_format(name, value)}\n" for name, value in table.items())


def _format(name: str, value: str | Sequence[str]) -> str:
    """Return a string or list as TOML, a long list on several lines."""
    line = _format_line(value)
    if isinstance(value, str) or len(f"{name} = {line}") <= _LINE:
        return line
    return "".join(["[\n", *(f"    {_format_line(each)},\n" for each in value), "]"])


def _format_line(value: str | Sequence[str]) -> str:
    """Return a string or list as TOML. JSON strings are valid TOML, except for DEL."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"[{', '.join(map(_format_line, value))}]"
