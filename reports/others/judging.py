"""One run of the suite on one implementation, and what was not expected of it."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from reports.others.catalogue import HERE, ROOT, Implementation
from spec_tests.harness.conformance import verdicts

__all__ = ["run", "surprises"]

#: Exit statuses of a run in which nothing failed: all is offered, or not all.
FINE = (0, 6)
#: How the suite says what a target does not offer.
_LACKING = re.compile(r"the target (?:has no submodule|does not define) ([\w.]+)")


def run(wanted: Implementation, python: Path, saved: Path, *, workers: int) -> int:
    """Judge it on the simulated accelerator; return the exit status of the command."""
    saved.unlink(missing_ok=True)
    options = ["--accelerator=sim", f"--verdicts={saved}"]
    if wanted.map is not None:
        options.append(f"--target-map={wanted.map.relative_to(ROOT).as_posix()}")
    parallel = ["-n", str(workers)] if workers > 1 else []
    expected = [f"-Wignore:{text}" for text in wanted.warns]
    command: list[str | Path] = [
        python,
        "-m",
        "spec_tests.cli.main",
        "run",
        wanted.target,
        *options,
    ]
    print(f"{wanted.name}: {wanted.title}", flush=True)
    places = [str(ROOT), *([str(HERE / wanted.path)] if wanted.path else [])]
    # Derandomised: what is on record must be seen in every run.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "CI": "true"}
    done = subprocess.run(
        [*command, "--", *parallel, *expected], cwd=ROOT, env=environment, check=False
    )
    return done.returncode


def surprises(wanted: Implementation, saved: Path, status: int) -> Iterator[str]:
    """What is otherwise than recorded, in words."""
    tests = verdicts.read(saved)
    found = verdicts.by_clause(tests)
    if not found:
        yield "no verdict of any clause"
    yield from (f"fail {name}" for name, verdict in found.items() if verdict == "fail")
    lacking = {name for test in tests for name in _lacking(test)}
    yield from (f"{name} is not offered" for name in sorted(lacking - set(wanted.lacks)))
    yield from (f"{name} is offered after all" for name in sorted(set(wanted.lacks) - lacking))
    if status not in FINE:
        yield f"exit status {status}"


def _lacking(test: dict[str, str]) -> list[str]:
    reason = test.get("reason", "") if test["verdict"] == "not-offered" else ""
    return _LACKING.findall(reason)
