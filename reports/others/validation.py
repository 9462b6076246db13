"""Run the suite on one implementation, and compare its verdicts with the recorded ones.

The record of an installed implementation is its register. The record of an older release, whose
modules come from a wheel, is its published run.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from reports.others.catalogue import ROOT, Implementation
from spec_tests.machine import clauses, verdict_file, verdicts
from spec_tests.reporting import runs

#: The exit statuses of a run that decided all tests; others are those of an interrupted run.
COMPLETE = (0, 1, 6)
#: The options of pytest for a release from a wheel: few examples, no search for smaller ones.
_QUICK = ("--hypothesis-profile=perturbations", "--tb=no")
#: The register of releases from a wheel. A test that passes in spite of a record passes.
_REGISTER = "spec_tests/registers/torch.nn.parallel.toml"


def run(implementation: Implementation, python: Path, verdicts_file: Path) -> int:
    """Run the suite on simulated devices and write ``verdicts_file``; return the exit status."""
    verdicts_file.unlink(missing_ok=True)
    if implementation.facts:
        return _run_facts(implementation, python, verdicts_file)
    options = ["--accelerator=sim", f"--verdicts={verdicts_file}"]
    if implementation.target_map_file is not None:
        options.append(
            f"--target-map={implementation.target_map_file.relative_to(ROOT).as_posix()}"
        )
    if implementation.wheel:
        options.append(f"--divergences={_REGISTER}")
        # The clauses of the devices say nothing about the release.
        known = clauses.load()
        chapters = [name.partition(".")[0] for name in known if known[name].is_about_target]
        options += [f"--clause={chapter}" for chapter in dict.fromkeys(chapters)]
    selection = ["-k", implementation.tests] if implementation.tests else []
    program: list[str | Path] = [python, "-m", "spec_tests.cli", "run"]
    print(f"{implementation.name}: {implementation.title}", flush=True)
    folders = [str(ROOT), str(wheels_folder(verdicts_file.parent))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    selection += _QUICK if implementation.wheel else []
    command = [*program, implementation.target, *options, "--", "-n2", *selection]
    if not implementation.wheel:
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    status = _run_without_texts(command, environment)
    if status in COMPLETE:
        _simplify(verdicts_file)
    return status


def _run_without_texts(command: list[str | Path], environment: dict[str, str]) -> int:
    # The text of a failure may quote a line of the older release.
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, text=True) as process:
        for line in process.stdout or ():
            if not line.startswith("  |"):
                print(line, end="", flush=True)
    return process.returncode


def wheels_folder(environments: Path) -> Path:
    """Return the folder of the packages that `wheels` writes."""
    return environments / "wheels"


def _simplify(verdicts_file: Path) -> None:
    """Keep kind and facts of each failure, and let tests pass in spite of a record.

    A text may quote a line of the older release.
    """
    lines = []
    for text in verdicts_file.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if found := line.pop("failure", None):
            kind = found["kind"]
            if kind == "stale-record":
                line["verdict"] = "pass"
            else:
                line["failure"] = {"kind": kind, "facts": found["facts"], "text": kind}
        lines.append(json.dumps(line))
    verdicts_file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def find_changed(verdicts_file: Path, published: Path) -> Iterator[str]:
    """Yield a text for each clause whose verdict differs from that of the published run."""
    if not published.exists():
        yield "no published run to compare with: run it with --publish"
        return
    before = runs.read(published)[1]
    after = verdicts.by_clause(verdict_file.read(verdicts_file))
    if not after:
        yield "no verdict of any clause"
    for name, verdict in after.items():
        if name in before and before[name].verdict != verdict:
            yield f"{verdict} {name}, published as {before[name].verdict}"


def _run_facts(implementation: Implementation, python: Path, verdicts_file: Path) -> int:
    """Run tests in place of the suite; their file of verdicts gets target and command."""
    command = ["-m", "pytest", implementation.facts, "--accelerator=sim", "--timeout=0"]
    arguments: list[str | Path] = [python, *command, f"--verdicts={verdicts_file}"]
    status = subprocess.run(arguments, cwd=ROOT, check=False).returncode
    if not verdicts_file.exists():
        return status
    header, *tests = verdicts_file.read_text(encoding="utf-8").splitlines(keepends=True)
    about = {
        "target": implementation.target,
        "version": "",
        "command": f"python {' '.join(command)}",
    }
    run = json.loads(header)["run"] | about
    verdicts_file.write_text("".join([json.dumps({"run": run}), "\n", *tests]), encoding="utf-8")
    return status


def find_unexpected(verdicts_file: Path, status: int) -> Iterator[str]:
    """Yield a text for each verdict that differs from its record, and for a failed run.

    Args:
        verdicts_file: The verdicts of the run.
        status: The exit status of the run.
    """
    found = verdicts.find_evidence(verdict_file.read(verdicts_file))
    if not found:
        yield "no verdict of any clause"
    for name, each in found.items():
        if each.verdict in ("fail", "not-offered") and not each.declared:
            yield f"{each.verdict} {name}"
    if status != 0:
        yield f"exit status {status}"
