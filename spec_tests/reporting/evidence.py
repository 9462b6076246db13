"""The evidence for the verdict of a clause, and the published form of a run.

The published form is a JSON document:

* ``run``: the metadata of the run,
* ``pass``: the ids of the clauses that pass, by their first word,
* ``not-offered`` and ``not-run``: for each reason the ids of the clauses,
* ``tests``: for each clause that fails or is known, one test with the difference and the smallest
  failing call, and in ``others`` the number of other tests with this verdict.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec_tests.machine import clauses, input_files, verdicts
from spec_tests.reporting import documents

_LISTED = ("not-offered", "not-run")
_TEST = {
    "clause": str,
    "test": str,
    "verdict": verdicts.VERDICTS,
    "difference": str,
    "call?": str,
    "others?": int,
}
_IDS = {...: [str]}
_SHAPE = {
    "run": {**verdicts.HEADER, "hardware": str},
    **dict.fromkeys(("pass", *_LISTED), _IDS),
    "tests": [_TEST],
}
#: Matches the folders of an absolute path, which must not be published.
_FOLDERS = re.compile(r"(?<![\w./:])/(?:[\w.+-]+/)+")
#: Matches the line "[gw0] ..." that pytest-xdist adds to a failure in a worker process.
_WORKER = re.compile(r"^\[gw\d+\] .*\n", re.MULTILINE)


@dataclass(frozen=True)
class Evidence:
    """The verdict of one clause in one run, with its evidence. A passing clause has none.

    Args:
        verdict: The verdict of the clause.
        difference: The difference, or the reason why the clause is not offered or was not run.
        test: A test with the verdict of the clause, if possible one with a smallest failing call.
        call: The smallest failing call; empty if the run has none.
        others: The number of other tests with the same verdict.
    """

    verdict: str
    difference: str = ""
    test: str = ""
    call: str = ""
    others: int = 0


def find_evidence(tests: Iterable[dict[str, str]]) -> dict[str, Evidence]:
    """Return the verdict of each clause with its evidence, from the tests of a run."""
    tests = list(tests)
    same: dict[str, list[dict[str, str]]] = {}
    verdict_of = verdicts.by_clause(tests)
    for test in tests:
        name = test.get("clause", "")
        if verdict_of.get(name) == test["verdict"]:
            same.setdefault(name, []).append(test)
    return {name: _make_evidence(same[name]) for name in verdict_of}


def _make_evidence(tests: Sequence[Mapping[str, str]]) -> Evidence:
    if tests[0]["verdict"] == "pass":
        return Evidence("pass")
    first = min(tests, key=lambda test: "call" not in test)
    text, call = first.get("difference", first.get("reason", "")), first.get("call", "")
    # The call is shown above the difference, so the difference does not repeat it.
    difference = text.replace(call, "the call above") if call else text
    return Evidence(first["verdict"], difference, first["test"], call, len(tests) - 1)


def publish(about: Mapping[str, Any], evidence: Mapping[str, Evidence]) -> str:
    """Return the published form of a run, without absolute folders."""
    document: dict[str, Any] = {"run": about, "pass": {}, "not-offered": {}, "not-run": {}}
    tests = []
    for name, each in sorted(evidence.items()):
        if each.verdict in document:
            reason = _clean(each.difference.partition("\n")[0])
            key = reason if each.verdict in _LISTED else name.partition(".")[0]
            document[each.verdict].setdefault(key, []).append(name)
        else:
            tests.append(_make_test(name, each))
    return documents.dump({**document, "tests": tests})


def _make_test(clause: str, evidence: Evidence) -> dict[str, Any]:
    test: dict[str, Any] = {"clause": clause, "test": evidence.test, "verdict": evidence.verdict}
    test["difference"] = _clean(evidence.difference)
    if evidence.call:
        test["call"] = _clean(evidence.call)
    return {**test, "others": evidence.others} if evidence.others else test


def _clean(text: str) -> str:
    """Return a text without absolute folders and "[gw0]" lines."""
    return _FOLDERS.sub("", _WORKER.sub("", text))


def read_published(path: Path) -> tuple[dict[str, Any], dict[str, Evidence]]:
    """Return the metadata of a published run, and the verdict of each clause with its evidence.

    Raises:
        input_files.RefusedError: The file cannot be read, or is not valid.
    """
    document = input_files.read_json(path, _SHAPE)
    found = {name: Evidence("pass") for ids in document["pass"].values() for name in ids}
    for verdict in _LISTED:
        for reason, ids in document[verdict].items():
            found |= dict.fromkeys(ids, Evidence(verdict, reason))
    for test in document["tests"]:
        found[test["clause"]] = Evidence(
            test["verdict"],
            test["difference"],
            test["test"],
            test.get("call", ""),
            test.get("others", 0),
        )
    for name in found:
        if not clauses.is_id(name):
            raise input_files.refuse(path, f"{name!r} is not the id of a clause")
    return document["run"], dict(sorted(found.items()))
