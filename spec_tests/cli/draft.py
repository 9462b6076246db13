"""The command ``draft``: print a register with the failures of a run.

A record is for all failures of one error, if a program shows it without the target, else for the
failures of one clause.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

import torch
from packaging.version import Version

from spec_tests.cli import failure_texts
from spec_tests.cli.inherited import INHERITED, find_inherited
from spec_tests.harness import input_files
from spec_tests.harness.conformance import causes, clauses

__all__ = ["draft"]

_RECORD = """\
[[divergence]]
id = {id}
kind = {kind}
clause = {clause}
tests = {tests}
failures = {failures}
observed = {observed}
{program}versions = {versions}
"""


def draft(
    tests: Iterable[Mapping[str, str]],
    source: object = "the run",
    kind: str = "target-bug",
    programs: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the records for the failures of a run as TOML.

    The user then corrects the versions of each record and adds threads.

    Args:
        tests: The tests and their verdicts.
        source: The file of the verdicts, for the text of an error.
        kind: The kind of the records without a program. The others have the kind back-end-bug.
        programs: Programs in plain PyTorch that show the causes of failures.

    Raises:
        input_files.RefusedError: The suite lacks the clause of a failed test.
    """
    named = [test for test in tests if "clause" in test]
    passed_tests = {
        _without_parameters(test["test"]) for test in named if test["verdict"] != "fail"
    }
    failed: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    for test in named:
        if test["verdict"] == "fail":
            failed[test["clause"]].append(test)
    if unknown := failed.keys() - clauses.load():
        raise input_files.refuse(source, f"no clause has the name {min(unknown)}")
    header = []
    if inherited := find_inherited(named):
        repaired, explained = inherited
        header = [f"inherits = {_format_toml(INHERITED)}\n"]
        header += [f"repaired = {_format_toml(repaired)}\n"] if repaired else []
        failed = {
            name: left
            for name, found in failed.items()
            if (left := [test for test in found if test["test"] not in explained])
        }
    lacks = _shorten_lacks({test["clause"] for test in named if test["verdict"] == "not-offered"})
    header += [f"lacks = {_format_toml(lacks)}\n"] if lacks else []
    by_cause: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    by_clause: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    # A wrong value may have another cause in each test.
    known = {causes.key_of(cause): cause for cause in programs if causes.is_error(cause)}
    for name, found in sorted(failed.items()):
        for test in found:
            cause = known.get(_cause_key(test))
            (by_clause[name] if cause is None else by_cause[cause]).append(test)
    of_causes = [("back-end-bug", found, programs[cause]) for cause, found in by_cause.items()]
    of_clauses = [(kind, found, "") for found in by_clause.values()]
    records = [
        _format_record(f"X-{number}", *each, passed_tests)
        for number, each in enumerate([*of_causes, *of_clauses], start=1)
    ]
    return "\n".join([*header, *records])


def _cause_key(test: Mapping[str, str]) -> str:
    return causes.key_of(causes.find_cause(test.get("difference", test.get("reason", ""))))


def _shorten_lacks(missing: Collection[str]) -> list[str]:
    """Return the shortest beginnings of ids that begin only clauses in ``missing``."""
    others = {
        beginning
        for clause_id in clauses.load().keys() - missing
        for beginning in _beginnings(clause_id)
    }
    return sorted(
        {next(each for each in _beginnings(name) if each not in others) for name in missing}
    )


def _beginnings(clause_id: str) -> list[str]:
    words = clause_id.split(".")
    return [".".join(words[:end]) for end in range(1, len(words) + 1)]


def _format_record(
    divergence_id: str,
    kind: str,
    failed_tests: list[Mapping[str, str]],
    program: str,
    passed_tests: Collection[str],
) -> str:
    """Return a record as TOML for failed tests."""
    failures = [failure_texts.specific(test) for test in failed_tests]
    names = _deduplicate(test["clause"] for test in failed_tests)
    fields = {
        "id": divergence_id,
        "kind": kind,
        "clause": names[0] if len(names) == 1 else names,
        "tests": _deduplicate(_recorded_test(test["test"], passed_tests) for test in failed_tests),
        "failures": _deduplicate(failure_texts.shorten(text) for text in failures),
        "observed": failures[0],
        "versions": f"torch>={Version(torch.__version__).base_version}",
    }
    texts = {key: _format_toml(value) for key, value in fields.items()}
    # A program has no triple quotes: it has names, numbers and devices only.
    return _RECORD.format(**texts, program=f"program = '''\n{program}'''\n" if program else "")


def _recorded_test(node_id: str, passed_tests: Collection[str]) -> str:
    """Return a test's id for a record. Keep the parameters only if other parameters pass."""
    without = _without_parameters(node_id)
    return node_id.removeprefix("spec_tests/") if without in passed_tests else without


def _without_parameters(node_id: str) -> str:
    return node_id.removeprefix("spec_tests/").split("[", 1)[0]


def _deduplicate(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _format_toml(value: str | Sequence[str]) -> str:
    """Return a string or list as TOML. JSON strings are valid TOML, except for DEL."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return "".join(["[\n", *(f"    {_format_toml(each)},\n" for each in value), "]"])
