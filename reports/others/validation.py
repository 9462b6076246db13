"""Run the suite on one implementation, and compare its verdicts with the recorded ones.

The record of an installed implementation is its register. The record of an older release, whose
modules come from a wheel, is its published run.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reports.others.catalogue import ROOT, Implementation
from spec_tests.machine import verdict_file, verdicts

#: The exit statuses of a run that decided all tests; others are those of an interrupted run.
_COMPLETE = (0, 1, 6)


def run(implementation: Implementation, python: Path, verdicts_file: Path) -> int:
    """Run the suite on simulated devices and write ``verdicts_file``; return the exit status."""
    print(implementation.name, flush=True)
    verdicts_file.unlink(missing_ok=True)
    wheel, packages = implementation.wheel, verdicts_file.parent / "wheels"
    if wheel:
        wheel.unpack(packages)
    done = subprocess.run(
        [python, "-m", *_command(implementation, f"--verdicts={verdicts_file}")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, packages)))},
        stdout=subprocess.PIPE if wheel else None,
        text=True,
        check=False,
    )
    for line in (done.stdout or "").splitlines():
        if not line.startswith("  |"):  # the text of a failure, which may quote the older release
            print(line)
    if done.returncode in _COMPLETE and (wheel or implementation.facts):
        header, *tests = map(json.loads, verdicts_file.read_text(encoding="utf-8").splitlines())
        if implementation.facts:
            command = " ".join(["python -m", *_command(implementation)])
            header["run"] |= {"version": "", "command": command}
        lines = [header, *(map(without_text, tests) if wheel else tests)]
        verdicts_file.write_text("".join(f"{json.dumps(each)}\n" for each in lines), "utf-8")
    return done.returncode


def _command(implementation: Implementation, *verdicts: str) -> list[str]:
    if implementation.facts:
        return ["pytest", implementation.facts, "--accelerator=sim", "--timeout=0", *verdicts]
    options = ["--accelerator=sim", *implementation.options, *verdicts]
    pytest = ["-n2", *implementation.pytest]
    return ["spec_tests.cli", "run", implementation.target, *options, "--", *pytest]


def without_text(test: dict[str, Any]) -> dict[str, Any]:
    """Return a test with only kind and facts of its failure. A stale record becomes a pass."""
    if not (found := test.get("failure")):
        return test
    if (kind := found["kind"]) == "stale-record":
        return {**test, "verdict": "pass", "failure": None}
    return {**test, "failure": {"kind": kind, "facts": found["facts"], "text": kind}}


def find_unexpected(
    verdicts_file: Path, status: int, record: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield a text for each verdict that differs from its record, and for a failed run.

    ``record`` has the verdicts of the published run; it is None if the record is the register.
    """
    if status not in _COMPLETE:
        yield f"the run did not end: exit status {status}"
        return
    found = verdicts.find_evidence(verdict_file.read(verdicts_file))
    if not found:
        yield "no verdict of any clause"
    for name, each in found.items():
        if record is not None and record.get(name, each.verdict) != each.verdict:
            yield f"{each.verdict} {name}, published as {record[name]}"
        if record is None and each.verdict in ("fail", "not-offered") and not each.declared:
            yield f"{each.verdict} {name}"
    if record is None and status != 0:
        yield f"exit status {status}"
