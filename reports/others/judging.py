"""One run of the suite on one implementation, and what was not expected of it."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from reports.others.catalogue import HERE, ROOT, Implementation
from spec_tests.harness.conformance import verdicts

__all__ = ["run", "surprises"]


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


def surprises(saved: Path, status: int) -> Iterator[str]:
    """What is otherwise than recorded, in words."""
    tests = verdicts.read(saved)
    found = verdicts.by_clause(tests)
    if not found:
        yield "no verdict of any clause"
    declared = verdicts.declared_by_clause(tests)
    for name, verdict in found.items():
        if verdict in verdicts.RED and name not in declared:
            yield f"{verdict} {name}"
    if status != 0:
        yield f"exit status {status}"
