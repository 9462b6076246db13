"""The command ``draft``: print a register with a record for each failed clause of a run."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import torch
from packaging.version import Version

from spec_tests.harness import input_files
from spec_tests.harness.conformance import clauses

__all__ = ["draft"]

#: Length in characters to which the text of a failure is cut. The rest is mostly tensor values.
_MAX_LENGTH = 60
_RECORD = """\
[[divergence]]
id = {id}
kind = {kind}
clause = {clause}
tests = {tests}
failures = {failures}
observed = {observed}
versions = {versions}
"""


def draft(
    tests: Iterable[Mapping[str, str]], source: object = "the run", kind: str = "target-bug"
) -> str:
    """Return the records for the failures of a run as TOML.

    The user then corrects the versions of each record, adds threads, and cuts the texts of
    ``failures`` to a part that is equal in every run.

    Args:
        tests: The tests and their verdicts.
        source: The file of the verdicts, for the text of an error.
        kind: The kind of all records.

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
    records = [
        _format_record(f"X-{number}", kind, name, found, passed_tests)
        for number, (name, found) in enumerate(sorted(failed.items()), start=1)
    ]
    return "\n".join(records)


def _format_record(
    divergence_id: str,
    kind: str,
    clause_id: str,
    failed_tests: list[Mapping[str, str]],
    passed_tests: Collection[str],
) -> str:
    """Return a record as TOML for the failed tests of one clause."""
    failures = [test.get("failure", test.get("reason", "")) for test in failed_tests]
    fields = {
        "id": divergence_id,
        "kind": kind,
        "clause": clause_id,
        "tests": _deduplicate(_recorded_test(test["test"], passed_tests) for test in failed_tests),
        "failures": _deduplicate(_shorten_failure(text) for text in failures),
        "observed": failures[0],
        "versions": f"torch>={Version(torch.__version__).base_version}",
    }
    return _RECORD.format(**{key: _format_toml(value) for key, value in fields.items()})


def _recorded_test(node_id: str, passed_tests: Collection[str]) -> str:
    """Return a test's id for a record. Keep the parameters only if other parameters pass."""
    without = _without_parameters(node_id)
    return node_id.removeprefix("spec_tests/") if without in passed_tests else without


def _without_parameters(node_id: str) -> str:
    return node_id.removeprefix("spec_tests/").split("[", 1)[0]


def _deduplicate(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _shorten_failure(failure: str) -> str:
    kind, colon, text = failure.partition(": ")
    return f"{kind}{colon}{text[:_MAX_LENGTH].strip()}"


def _format_toml(value: str | Sequence[str]) -> str:
    """Return a string or list as TOML. JSON strings are valid TOML, except for DEL."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return "".join(["[\n", *(f"    {_format_toml(each)},\n" for each in value), "]"])
