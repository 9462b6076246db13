"""The command ``draft``: print a register with a record for each failed clause of a run."""

import datetime
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import torch

from spec_tests.harness.conformance import clauses

__all__ = ["draft"]

#: The time until the review of a record.
_REVIEW_AFTER = datetime.timedelta(days=180)
#: The number of characters of a failure that a record keeps; the rest is mostly values.
_LENGTH = 60
_RECORD = """\
[[divergence]]
id = {id}
kind = "target-bug"
clause = {clause}
tests = {tests}
failures = {failures}
specified = {specified}
observed = {observed}
threads = []
versions = {versions}
review_by = {review_by}
"""


def draft(tests: Iterable[Mapping[str, str]]) -> str:
    """Return the records for the failures of a run as TOML.

    The user corrects kind, threads, versions and date, and shortens the texts of ``failures`` to a
    part that is equal in every run.
    """
    named = [test for test in tests if "clause" in test]
    passed = {_plain(test["test"]) for test in named if test["verdict"] != "fail"}
    failed: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    for test in named:
        if test["verdict"] == "fail":
            failed[test["clause"]].append(test)
    known = clauses.load()
    records = [
        _record(f"X-{number}", known[name], found, passed)
        for number, (name, found) in enumerate(sorted(failed.items()), start=1)
    ]
    return "\n".join(records)


def _record(
    name: str, clause: clauses.Clause, found: list[Mapping[str, str]], passed: Collection[str]
) -> str:
    failures = [test.get("failure", test["reason"]) for test in found]
    fields = {
        "id": name,
        "clause": clause.id,
        "tests": _unique(_name(test["test"], passed) for test in found),
        "failures": _unique(_beginning(text) for text in failures),
        "specified": clause.says,
        "observed": failures[0],
        "versions": torch.__version__,
    }
    review = datetime.datetime.now(datetime.UTC).date() + _REVIEW_AFTER
    texts = {key: _toml(value) for key, value in fields.items()}
    return _RECORD.format(**texts, review_by=review.isoformat())


def _name(test: str, passed: Collection[str]) -> str:
    """Return the node id for a record, with parameters only if the test passes with others."""
    return test.removeprefix("spec_tests/") if _plain(test) in passed else _plain(test)


def _plain(test: str) -> str:
    return test.removeprefix("spec_tests/").split("[", 1)[0]


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _beginning(failure: str) -> str:
    kind, colon, text = failure.partition(": ")
    return f"{kind}{colon}{text[:_LENGTH].strip()}"


def _toml(value: str | Sequence[str]) -> str:
    """Format a string or a list of strings. JSON strings are valid in TOML, except for DEL."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return "".join(["[\n", *(f"    {_toml(each)},\n" for each in value), "]"])
