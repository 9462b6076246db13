"""Published runs: JSON documents with the evidence of each clause.

A document has:

* ``run``: the metadata of the run,
* ``pass``: the ids of the clauses that pass, by their first word,
* ``not-offered`` and ``not-run``: for each reason the ids of the clauses,
* ``tests``: for each clause that fails, is known, or has failed tests that do not decide it, one
  test with its `Failure`, and in ``others`` the number of other tests with this verdict. A
  document of an earlier suite (format 1) has no failures.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from spec_tests.machine import clauses, input_files, verdict_file
from spec_tests.machine.verdicts import Evidence
from spec_tests.reporting import documents

#: Matches the folders of an absolute path, which must not be published.
_FOLDERS = re.compile(r"(?<![\w./:])/(?:[\w.+-]+/)+")


_Ids = dict[str, list[str]]
_Document = TypedDict(
    "_Document",
    {
        "run": dict[str, Any],
        "pass": _Ids,
        "not-offered": _Ids,
        "not-run": _Ids,
        "tests": list[dict[str, Any]],
    },
)


def publish(about: Mapping[str, Any], evidence: Mapping[str, Evidence]) -> str:
    """Return the published form of a run, without absolute folders."""
    document: dict[str, Any] = {"run": about, "pass": {}, "not-offered": {}, "not-run": {}}
    tests = []
    for name, own in sorted(evidence.items()):
        if own.verdict in document and not own.is_undecided:
            reason = _clean(own.reason.partition("\n")[0])
            key = name.partition(".")[0] if own.verdict == "pass" else reason
            document[own.verdict].setdefault(key, []).append(name)
        else:
            tests.append(_make_test(name, own))
    return documents.dump({**document, "tests": tests})


def _make_test(clause: str, evidence: Evidence) -> dict[str, Any]:
    names = ("test", "verdict", "reason", "failure", "others")
    test = {"clause": clause, **{name: getattr(evidence, name) for name in names}}
    if failure := evidence.failure:
        texts: dict[str, Any] = {
            name: _clean(getattr(failure, name)) for name in ("text", "error", "call")
        }
        test["failure"] = dataclasses.replace(failure, **texts).to_json()
    return {name: value for name, value in test.items() if value}


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
    header = input_files.convert(document["run"], verdict_file.Header, f"{path}: run")
    if header.format > verdict_file.FORMAT or "hardware" not in document["run"]:
        raise input_files.refuse(path, "the run is of a later suite, or lacks the key 'hardware'")
    evidence = {name: Evidence("pass") for ids in document["pass"].values() for name in ids}
    for reason, ids in document["not-offered"].items():
        evidence |= dict.fromkeys(ids, Evidence("not-offered", reason))
    for reason, ids in document["not-run"].items():
        evidence |= dict.fromkeys(ids, Evidence("not-run", reason))
    for test in document["tests"]:
        name = str(test.get("clause"))
        evidence[name] = input_files.convert(test, Evidence, f"{path}: test of {name}")
    for name in evidence:
        if not clauses.is_id(name):
            raise input_files.refuse(path, f"{name!r} is not the id of a clause")
    return document["run"], dict(sorted(evidence.items()))
