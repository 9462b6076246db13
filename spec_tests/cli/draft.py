"""The command ``draft``: print a register with the failures of runs.

Each new record is one line of the list ``drafted``, for a test and the facts that fail in it.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spec_tests.failure import SUITE, Failure
from spec_tests.machine import clauses, input_files, register, verdict_file
from spec_tests.machine.conclusion import FEW_EXAMPLES
from spec_tests.machine.verdicts import TestVerdict

_DRAFTED = """\
# Not examined: a line for each test. To explain one, make it a table [[divergence]] with
# `observed` and `reason`.
"""
_EMPTY = "# There are no records: no failure of the runs needs one.\n"
#: The length of a line of a register.
_LINE = 99


def main(options: argparse.Namespace) -> int:
    """Print the register."""
    if not options.file and options.divergences is None:
        raise input_files.RefusedError("draft needs a file of verdicts, or --divergences REGISTER")
    tests: list[TestVerdict] = []
    for file in options.file:
        run, added = verdict_file.read_run(file)
        for text in _warnings(run, added, has_register=options.divergences is not None):
            print(f"{file}: {text}", file=sys.stderr)
            print(f"# {file}: {text}\n")
        tests += added
    sources = ", ".join(map(str, options.file))
    print(draft(tests, sources, options.kind, options.divergences))
    return 0


def _warnings(
    run: Mapping[str, Any], tests: Sequence[TestVerdict], *, has_register: bool
) -> Iterator[str]:
    """Yield which failures of a run the draft may lack."""
    if "incomplete" in run:
        yield run["incomplete"]
    examples = run.get("examples")
    if examples and examples < FEW_EXAMPLES:
        yield f"{examples} examples a test: with more, a test may fail in another way"
    failed = [test for test in tests if test.verdict == "fail" and test.failure]
    for name in dict.fromkeys(test.test for test in failed if _failure(test).kind == "time"):
        yield f"{name} does not end: each run with this record waits for its time limit"
    recorded = sum(test.verdict == "known" for test in tests)
    if recorded and not has_register:
        yield f"{recorded} known failures: --divergences REGISTER keeps their records"


def draft(
    tests: Iterable[TestVerdict],
    source: object = "the runs",
    kind: str = "target-bug",
    register_file: Path | None = None,
    suite: Path = SUITE,
) -> str:
    """Return the records for the failures of runs as TOML.

    The user then corrects the versions of each record and adds threads.

    Args:
        tests: The tests and their verdicts. Of a test that occurs again, the last verdict counts,
            with the facts of all its failures.
        source: The file of the verdicts, for the text of an error.
        kind: The kind of the records.
        register_file: The register of the runs. The text begins with the names that it declares
            and its records, without the tests that pass, those that fail otherwise, and those
            that the suite lacks. Inherited tests that pass are added to ``repaired``. A record of
            an earlier suite gets the facts of its tests.
        suite: The folder of the suite.

    Raises:
        input_files.RefusedError: The suite lacks the clause of a failed test, or the register is
            not valid.
    """
    last = {(test.test, test.clause): test for test in tests if test.clause}
    named = [*last.values()]
    judged = [test for test in named if test.verdict in ("fail", "known")]
    failed = [test for test in judged if test.verdict == "fail" and not _is_stale(test)]
    if unknown := {test.clause for test in failed} - clauses.load(suite).keys():
        raise input_files.refuse(source, f"no clause has the name {min(unknown)}")
    tables = {} if register_file is None else register.read_tables(register_file)
    missing = (test for test in named if test.verdict == "not-offered")
    names = {fact.name for test in missing for fact in _failure(test).facts}
    lacks = sorted(names.union(tables.pop("lacks", ())))
    if register_file is not None and (repaired := _repaired(tables, register_file, named, suite)):
        tables["repaired"] = repaired
    lists = {key: tables.pop(key, []) for key in ("drafted", "divergence")}
    left = {
        key: [record for entry in entries for record in _update(entry, named, suite)]
        for key, entries in lists.items()
    }
    old = [record for records in left.values() for record in records]
    new = [test for test in failed if not any(_expects(record, test) for record in old)]
    numbers = (
        int(entry["id"][2:])
        for entries in lists.values()
        for entry in entries
        if re.fullmatch(r"X-\d+", entry["id"])
    )
    left["drafted"] += _make_records(new, named, kind, 1 + max(numbers, default=0))
    text = _format_register({**({"lacks": lacks} if lacks else {}), **tables, **left})
    return text if any(left.values()) else f"{text}{_EMPTY}"


def _is_stale(test: TestVerdict) -> bool:
    """Return whether a test fails because it passes although a record expects its failure."""
    return test.failure is not None and test.failure.is_stale


def _passes(test: TestVerdict) -> bool:
    """Return whether a test passes, with its record or without it."""
    return test.verdict == "pass" or _is_stale(test)


def _applies(entry: Mapping[str, Any]) -> bool:
    """Return whether a record expects failures on this release of PyTorch."""
    versions = entry.get("versions", "")
    return not versions or register.is_satisfied(versions)


def _repaired(
    tables: Mapping[str, Any], path: Path, tests: Sequence[TestVerdict], suite: Path
) -> list[str]:
    """Return ``repaired`` of a register, with the inherited tests that pass now.

    If only some cases of a test pass, it has these cases.
    """
    found: list[str] = [*tables.get("repaired", ())]
    records = register.inherited_records(tables, path, suite / "registers")
    passed = {_node_id(test) for test in tests if _is_stale(test)}
    for record in records:
        for name in record.tests:
            own = dict.fromkeys(_node_id(test) for test in tests if _is_named_by(name, test))
            cases = [case for case in own if case in passed]
            is_whole = own.keys() <= passed | record.repaired
            found += [name] if cases and is_whole else cases
    return list(dict.fromkeys(found))


def _update(
    entry: Mapping[str, Any], tests: Sequence[TestVerdict], suite: Path
) -> Iterator[dict[str, Any]]:
    """Yield the record without tests that pass or fail otherwise, or that the suite no longer has.

    If some parameters of a test pass or fail otherwise, the record names the others. A record of
    an earlier suite gets the facts of its tests.
    """
    left: list[str] = []
    has_passed = False
    # A test with the verdict "pass" was run without the record.
    verdicts = ("fail", "known", *(["pass"] if _applies(entry) else []))
    judged = [test for test in tests if test.verdict in verdicts]
    for name in entry["tests"]:
        own = [test for test in judged if _is_named_by(name, test)]
        if not register.is_defined(name, suite):
            print(f"{entry['id']}: left out, no such test: {name}", file=sys.stderr)
            continue
        other = {_node_id(test) for test in own if _fails_otherwise(entry, test)}
        if other:
            text = "left out, because it fails with other facts now"
            print(f"{entry['id']}: {text}: {', '.join(sorted(other))}", file=sys.stderr)
        passes = any(map(_passes, own))
        has_passed = has_passed or passes
        if other or passes:
            left += sorted({_node_id(test) for test in own if not _passes(test)} - other)
        else:
            left.append(name)
    record = {**entry, "tests": left}
    if left and not entry.get("expects"):
        own = [test for test in judged if any(_is_named_by(name, test) for name in left)]
        facts = dict.fromkeys(fact for test in own for fact in _failure(test).fact_texts)
        if facts:
            record["expects"] = [*facts]
        else:
            print(f"{entry['id']}: no test of this record fails in the runs", file=sys.stderr)
    if left:
        yield record
    elif has_passed:
        print(f"{entry['id']}: left out, because its tests pass", file=sys.stderr)


def _is_named_by(name: str, test: TestVerdict) -> bool:
    """Return whether an entry ``name`` of a record stands for a test."""
    return name in (_node_id(test), _function(test))


def _fails_otherwise(entry: Mapping[str, Any], test: TestVerdict) -> bool:
    """Return whether a test fails with facts that its record does not expect."""
    is_judged = test.verdict == "fail" and not _is_stale(test) and "expects" in entry
    return is_judged and _applies(entry) and not _failure(test).is_expected(entry["expects"])


def _expects(entry: Mapping[str, Any], test: TestVerdict) -> bool:
    """Return whether a record, which may have been converted, expects the failure of a test."""
    is_named = any(_is_named_by(name, test) for name in entry["tests"])
    return is_named and _failure(test).is_expected(entry.get("expects", ()))


def _make_records(
    failed: Iterable[TestVerdict], tests: Iterable[TestVerdict], kind: str, number: int
) -> Iterator[dict[str, Any]]:
    """Yield a record for the tests of each function that fail alike, from X-``number`` on."""
    of_function: dict[str, set[str]] = defaultdict(set)
    for test in tests:
        of_function[_function(test)].add(_node_id(test))
    groups: dict[tuple[str, ...], list[TestVerdict]] = defaultdict(list)
    for test in sorted(failed, key=lambda test: test.clause):
        groups[_function(test), *_failure(test).key].append(test)
    for place, ((function, *_), group) in enumerate(groups.items(), number):
        names = [*dict.fromkeys(test.clause for test in group)]
        ids = dict.fromkeys(map(_node_id, group))
        yield {
            "id": f"X-{place}",
            **({} if kind == register.DRAFTED_KIND else {"kind": kind}),
            "clause": names[0] if len(names) == 1 else names,
            # Keep the parameters only if the test fails otherwise, or passes, with others.
            "tests": [function] if ids.keys() == of_function[function] else [*ids],
            "expects": _failure(group[0]).fact_texts,
        }


def _failure(test: TestVerdict) -> Failure:
    return test.failure or Failure("error", (), "")


def _node_id(test: TestVerdict) -> str:
    return test.test.removeprefix("spec_tests/")


def _function(test: TestVerdict) -> str:
    return register.without_parameters(_node_id(test))


def _format_register(tables: Mapping[str, Any]) -> str:
    """Return the text of a register with these tables."""
    inner = ("titles", "drafted", "divergence")
    parts = [_format_table({name: value for name, value in tables.items() if name not in inner})]
    if tables.get("drafted"):
        records = (
            ", ".join(f"{name} = {_format_line(value)}" for name, value in record.items())
            for record in tables["drafted"]
        )
        lines = (f"    {{ {record} }},\n" for record in records)
        parts.append(f"{_DRAFTED}drafted = [\n{''.join(lines)}]\n")
    if "titles" in tables:
        parts.append(f"[titles]\n{_format_table(tables['titles'])}")
    parts += [
        f"[[divergence]]\n{_format_table(record)}" for record in tables.get("divergence", ())
    ]
    return "\n".join(filter(None, parts))


def _format_table(table: Mapping[str, str | Sequence[str]]) -> str:
    """Return the lines of a table. A long list has several lines."""
    lines = []
    for name, value in table.items():
        line = f"{name} = {_format_line(value)}"
        if not isinstance(value, str) and len(line) > _LINE:
            entries = (f"    {_format_line(entry)},\n" for entry in value)
            line = f"{name} = [\n{''.join(entries)}]"
        lines.append(f"{line}\n")
    return "".join(lines)


def _format_line(value: str | Sequence[str]) -> str:
    """Return a string or list as TOML. JSON strings are valid TOML, except for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
