"""Files of results that a stranger might send: for the tests of the pages."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["HOSTILE", "benchmarks", "environment", "verdicts"]

#: What may stand in every field: HTML, an attribute, a template, mathematics, a formula.
HOSTILE = (
    '=$\\frac{ $</pre></title><script>alert(\'x\')</script>" onfocus="alert(1)" {{ 7 * 7 }} \x07'
)


def verdicts(path: Path, tests: Mapping[str, str], **about: Any) -> Path:
    """Write a file of verdicts.

    Args:
        path: The file.
        tests: The verdict of each clause.
        about: What it says of its run, beside or in place of what all say.
    """
    said = {
        "format": 1,
        "target": "theirs",
        "version": "1.0",
        "torch": "2.12.0+cpu",
        "python": "3.12.1",
        "accelerator": "sim",
        "devices": ["sim:0", "sim:1"],
        "date": "2026-01-02T03:04:05+00:00",
        "command": "parallel-conformance run theirs --accelerator=sim",
        **about,
    }
    lines = [{"run": said}, *(_test(clause, verdict) for clause, verdict in tests.items())]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def _test(clause: str, verdict: str) -> dict[str, str]:
    test = {"clause": clause, "test": f"spec_tests/test_{clause}.py::test_it", "verdict": verdict}
    if verdict == "not-run":
        test["reason"] = "needs two devices"
    elif verdict != "pass":
        test |= {"reason": "E", "difference": f"{clause} differs", "call": f"call({clause!r})"}
    return test


def environment(home: Path, **about: Any) -> None:
    """Write what a published folder says of its run."""
    said = {
        "date": "2026-01-02T03:04:05+00:00",
        "target": "impl",
        "hardware": "sim",
        "torch": "2.12.0+cpu",
        "python": "3.12.1",
        **about,
        "complete": True,
    }
    home.mkdir(parents=True, exist_ok=True)
    (home / "environment.json").write_text(json.dumps(said), encoding="utf-8")


def benchmarks(home: Path, groups: Mapping[str, Mapping[str, float]], **about: Any) -> None:
    """Write a published folder of benchmarks.

    Args:
        home: The folder.
        groups: The median of each library, by group; quartiles are a tenth off.
        about: What stands in place of what all say of their machine.
    """
    machine = {
        "cpu": "Fast",
        "cores": 2,
        "torch": "2.12.0",
        "python_version": "3.12.1",
        "devices": ["sim:0"],
        **about,
    }
    benches = [
        {
            "group": group,
            "extra_info": {"library": library, "peak_bytes": 1000 * median},
            "stats": {"q1": median * 0.9, "median": median, "q3": median * 1.1},
        }
        for group, libraries in groups.items()
        for library, median in libraries.items()
    ]
    run = {"datetime": "2026-01-02", "commit": "abc", "benchmarks": benches}
    environment(home)
    (home / "benchmark.json").write_text(json.dumps({"machine": machine, "runs": [run]}))
