"""A register to start from: what failed in a run, a record for each clause."""

import datetime
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import torch

from spec_tests.harness.conformance import clauses

__all__ = ["draft"]

#: When to look again.
_LATER = datetime.timedelta(days=180)
#: Of a failure's text so much is kept: what comes later is mostly values.
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
    """The records, as TOML, of the failures among the verdicts of a run.

    Kind, threads, versions and date are the reader's to correct; so are the texts of ``failures``,
    of which a part that is the same in every run is enough.
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
    name: str, about: clauses.Clause, found: list[Mapping[str, str]], passed: Collection[str]
) -> str:
    failures = [test.get("failure", test["reason"]) for test in found]
    fields = {
        "id": name,
        "clause": about.id,
        "tests": _each(_name(test["test"], passed) for test in found),
        "failures": _each(_beginning(text) for text in failures),
        "specified": about.says,
        "observed": failures[0],
        "versions": torch.__version__,
    }
    review = datetime.datetime.now(datetime.UTC).date() + _LATER
    texts = {key: _toml(value) for key, value in fields.items()}
    return _RECORD.format(**texts, review_by=review.isoformat())


def _name(test: str, passed: Collection[str]) -> str:
    """A test as records name it: with its parameters only if it passes with others."""
    return test.removeprefix("spec_tests/") if _plain(test) in passed else _plain(test)


def _plain(test: str) -> str:
    return test.removeprefix("spec_tests/").split("[", 1)[0]


def _each(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _beginning(failure: str) -> str:
    kind, colon, text = failure.partition(": ")
    return f"{kind}{colon}{text[:_LENGTH].strip()}"


def _toml(value: str | Sequence[str]) -> str:
    """A string or a list of them; TOML reads JSON's strings, but for an unescaped DEL."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return "".join(["[\n", *(f"    {_toml(each)},\n" for each in value), "]"])
