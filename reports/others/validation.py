"""Run the suite on one implementation and compare the verdicts with the record."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from reports.others.catalogue import HERE, ROOT, Implementation
from spec_tests.harness.conformance import verdicts

__all__ = ["run", "unexpected"]

#: Exit statuses of a run without failures: with all names defined, and with names missing.
EXIT_OK = (0, 6)
#: The suite's messages about names that a target does not define.
_MISSING = re.compile(r"the target (?:has no submodule|does not define) ([\w.]+)")


def run(implementation: Implementation, python: Path, saved: Path, *, workers: int) -> int:
    """Run the suite on the simulated accelerator; return the exit status."""
    saved.unlink(missing_ok=True)
    options = ["--accelerator=sim", f"--verdicts={saved}"]
    if implementation.map is not None:
        options.append(f"--target-map={implementation.map.relative_to(ROOT).as_posix()}")
    parallel = ["-n", str(workers)] if workers > 1 else []
    filters = [f"-Wignore:{text}" for text in implementation.warns]
    program: list[str | Path] = [python, "-m", "spec_tests.cli.main", "run"]
    print(f"{implementation.name}: {implementation.title}", flush=True)
    folders = [str(ROOT), *([str(HERE / implementation.path)] if implementation.path else [])]
    # CI selects the derandomised profile: the recorded verdicts must repeat in every run.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "CI": "true"}
    command = [*program, implementation.target, *options, "--", *parallel, *filters]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def unexpected(implementation: Implementation, saved: Path, status: int) -> Iterator[str]:
    """Yield one text for each difference from the record."""
    tests = verdicts.read(saved)
    found = verdicts.by_clause(tests)
    if not found:
        yield "no verdict of any clause"
    yield from (f"fail {name}" for name, verdict in found.items() if verdict == "fail")
    missing = {name for test in tests for name in _missing(test)}
    recorded = set(implementation.lacks)
    yield from (f"{name} is not defined" for name in sorted(missing - recorded))
    yield from (
        f"{name} is recorded as missing, but defined" for name in sorted(recorded - missing)
    )
    if status not in EXIT_OK:
        yield f"exit status {status}"


def _missing(test: dict[str, str]) -> list[str]:
    reason = test.get("reason", "") if test["verdict"] == "not-offered" else ""
    return _MISSING.findall(reason)
