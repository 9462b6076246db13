"""The causes of failures, and the published form of a run.

The published form is a JSON document:

* ``run``: the metadata of the run,
* ``pass``: the ids of the clauses that pass, by their first word,
* ``not-offered`` and ``not-run``: for each reason the ids of the clauses,
* ``tests``: for each clause that fails, is known, or has failed tests that do not decide it, one
  test with its `Failure`, and in ``others`` the number of other tests with this verdict. A
  document of an earlier suite (format 1) has no failures.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from spec_tests.failure import Failure
from spec_tests.machine import clauses, input_files, verdict_file
from spec_tests.machine.target import REFERENCE
from spec_tests.machine.verdicts import Evidence
from spec_tests.reporting import documents

_LISTED = ("not-offered", "not-run")
#: The cause of failures without a description.
EARLIER = "an earlier suite"
#: Matches the folders of an absolute path, which must not be published.
_FOLDERS = re.compile(r"(?<![\w./:])/(?:[\w.+-]+/)+")


class _Test(msgspec.Struct):
    """An entry of ``tests``."""

    clause: str
    test: str
    verdict: Literal["fail", "not-offered", "known", "pass", "not-run"]
    reason: str = ""
    failure: Failure | None = None
    others: int = 0


class _Document(
    msgspec.Struct,
    rename={"passed": "pass", "not_offered": "not-offered", "not_run": "not-run"},
):
    """A published run."""

    run: dict[str, Any]
    passed: dict[str, list[str]]
    not_offered: dict[str, list[str]]
    not_run: dict[str, list[str]]
    tests: list[_Test]


def group_by_cause(
    found: Mapping[str, Evidence], violated: Collection[str] = ()
) -> list[tuple[str, list[str]]]:
    """Return causes with the ids of their clauses; the most frequent cause comes first.

    The text of a cause is that of its first clause. If it does not say what is wrong, it begins
    with the part of the specification.

    Args:
        found: The evidence for each clause.
        violated: Clauses that torch.nn.parallel violates. A cause that has only these comes after
            the others.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    of_test: dict[tuple[str, ...], tuple[str, ...]] = {}
    for clause, each in found.items():
        key = each.failure.group(clause) if each.failure else (EARLIER,)
        if each.failure:  # One failure of a test may fail several clauses.
            key = of_test.setdefault((each.test, *each.failure.key), key)
        groups.setdefault(key, []).append(clause)
    ordered = sorted(groups.values(), key=lambda names: ({*names} <= {*violated}, -len(names)))
    return [(_title(names[0], found[names[0]].failure), names) for names in ordered]


def causes_by_title(
    found: Mapping[str, Evidence], violated: Collection[str]
) -> dict[str, list[tuple[str, list[str]]]]:
    """Return the causes of the failures of a run, for each title of a list of causes.

    A cause has its text and the ids of its clauses. Causes with clauses that torch.nn.parallel
    passes come before the others.

    Args:
        found: The evidence for each clause.
        violated: The clauses that torch.nn.parallel violates.
    """
    failures = {name: each for name, each in found.items() if each.verdict == "fail"}
    stale = {name: each for name, each in failures.items() if _is_stale(each)}
    failed = {name: each for name, each in failures.items() if name not in stale}
    groups = group_by_cause(failed, violated)
    here = failed.keys() - {*violated}
    first = [each for each in groups if here.intersection(each[1])]
    parts = {
        "tests in the register pass; draft FILE --divergences REGISTER updates it:": (
            group_by_cause(stale)
        ),
        f"{len(here)} of {len(failed)} failed clauses pass in {REFERENCE}:": first,
        f"{REFERENCE} violates these, too:": groups[len(first) :],
    }
    return {title: causes for title, causes in parts.items() if causes}


def _is_stale(evidence: Evidence) -> bool:
    return evidence.failure is not None and evidence.failure.kind == "stale-record"


def _title(clause: str, failure: Failure | None) -> str:
    if failure is None:
        return EARLIER
    part = ".".join(clause.split(".")[:2])
    return f"{part}: {failure.title}" if failure.is_bare else failure.title


def publish(about: Mapping[str, Any], evidence: Mapping[str, Evidence]) -> str:
    """Return the published form of a run, without absolute folders."""
    document: dict[str, Any] = {"run": about, "pass": {}, "not-offered": {}, "not-run": {}}
    tests = []
    for name, each in sorted(evidence.items()):
        if each.verdict in document and not each.is_undecided:
            reason = _clean(each.reason.partition("\n")[0])
            key = reason if each.verdict in _LISTED else name.partition(".")[0]
            document[each.verdict].setdefault(key, []).append(name)
        else:
            tests.append(_make_test(name, each))
    return documents.dump({**document, "tests": tests})


def _make_test(clause: str, evidence: Evidence) -> dict[str, Any]:
    test: dict[str, Any] = {"clause": clause, "test": evidence.test, "verdict": evidence.verdict}
    if evidence.reason:
        test["reason"] = evidence.reason
    if found := evidence.failure:
        texts: dict[str, Any] = {
            name: _clean(getattr(found, name)) for name in ("text", "error", "call")
        }
        test["failure"] = dataclasses.replace(found, **texts).to_json()
    return {**test, "others": evidence.others} if evidence.others else test


def _clean(text: str) -> str:
    """Return a text without absolute folders."""
    return _FOLDERS.sub("", text)


def read_published(path: Path) -> tuple[dict[str, Any], dict[str, Evidence]]:
    """Return the metadata of a published run, and the verdict of each clause with its evidence.

    Raises:
        input_files.RefusedError: The file cannot be read, or is not valid.
    """
    value = input_files.parse_json(input_files.read_text(path), str(path))
    document = input_files.convert(value, _Document, path)
    header = input_files.convert(document.run, verdict_file.Header, f"{path}: run")
    if header.format > verdict_file.FORMAT or "hardware" not in document.run:
        raise input_files.refuse(path, "the run is of a later suite, or lacks the key 'hardware'")
    found = {name: Evidence("pass") for ids in document.passed.values() for name in ids}
    for verdict, listed in (("not-offered", document.not_offered), ("not-run", document.not_run)):
        for reason, ids in listed.items():
            found |= dict.fromkeys(ids, Evidence(verdict, reason))
    for test in document.tests:
        found[test.clause] = Evidence(
            test.verdict, test.reason, test.failure, test.test, test.others
        )
    for name in found:
        if not clauses.is_id(name):
            raise input_files.refuse(path, f"{name!r} is not the id of a clause")
    return document.run, dict(sorted(found.items()))
