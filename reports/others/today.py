"""Publish runs of today's suite: ``tox -e publish [-- NAME ...]``.

The command runs the suite on impl, with each release of PyTorch and each Python that the machine
has, and on the implementations of `catalogue`. It adds their files and builds the pages. Runs of
back ends stay as they are, and the matrix calls them *an earlier suite*. The command fails if a
run differs from its record, or if the README's status counts a run of another suite.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from reports.others import __main__ as others
from reports.others import catalogue, environments, history, validation
from reports.others.catalogue import ROOT, Implementation
from reports.publishing.publish import REPORTS, build, publish
from spec_tests.machine import clauses
from spec_tests.machine.verdicts import VERDICTS
from spec_tests.reporting.matrix import Matrix
from spec_tests.reporting.runs import load

_PYTHON = json.loads((ROOT / ".ci/releases.json").read_text(encoding="utf-8"))["python"]
#: A count in the README: clauses that pass, clauses about the target, and the page of the run.
_COUNT = re.compile(r"\[(\d+) of (\d+)\]\(([^)]+)\)")
_EARLIER = "an earlier suite"


def main() -> int:
    """Run and publish; return 1 if a run differs from its record, or the README from the runs."""
    parser = argparse.ArgumentParser(prog="tox -e publish --", description=__doc__)
    parser.add_argument("name", nargs="*", help="implementations to run (default: all)")
    parser.add_argument("--home", type=Path, required=True, help="the folder of environments")
    options = parser.parse_args()
    runs = find_runs(options.home.resolve())
    if unknown := set(options.name) - set(runs):
        parser.error(f"there is no {min(unknown)}; there are {', '.join(runs)}")
    wrong = [name for name in options.name or runs if runs[name]()]
    history.main()
    build(REPORTS)
    problems = [*(f"{name} differs from its record" for name in wrong), *check_status()]
    print("\n".join(problems) or "all runs are published", flush=True)
    return int(bool(problems))


def find_runs(home: Path) -> dict[str, Callable[[], int]]:
    """Return the runs by name. A run publishes its verdicts; it returns 0 if they are expected."""
    known = catalogue.load()
    default, *_ = catalogue.RELEASES["gate"]
    found: dict[str, Callable[[], int]] = {}
    for release in catalogue.RELEASES["gate"] + catalogue.RELEASES["older"]:
        run = partial(_run_impl, home, known[f"torch-{release}"], sys.executable)
        found[f"impl-torch-{release}"] = run
    for version in _PYTHON["gate"][1:] + _PYTHON["others"]:
        if (base := shutil.which(f"python{version}")) and _runs(base):
            implementation = known[f"torch-{default}"]
            run = partial(_run_impl, home, implementation, base, f"python{version}")
            found[f"impl-python{version}"] = run
    for name in known:
        found[name] = partial(others.main, [name, "--publish", f"--home={home}"])
    return found


def _runs(python: str) -> bool:
    # pyenv has a shim for each version, which fails unless the version is active.
    return subprocess.run([python, "--version"], capture_output=True, check=False).returncode == 0


def _run_impl(home: Path, release: Implementation, base: str, suffix: str = "") -> int:
    python = environments.prepare_environment(release, home / suffix, base)
    impl = Implementation("impl", f"impl on PyTorch {release.torch} {suffix}", "impl")
    verdicts = home / f"impl-{suffix or release.name}.jsonl"
    status = validation.run(impl, python, verdicts)
    if status == 0:
        print(publish([verdicts], hardware=f"sim-{suffix}" if suffix else None))
    return status


def check_status(readme: Path = ROOT / "README.md", folder: Path = REPORTS) -> Iterator[str]:
    """Yield a text for each count in the README that is not that of a run of today's suite.

    A line with a count says that it is of an earlier suite, or links the file of its run.
    """
    known = clauses.load()
    today = clauses.suite_version(known)
    found = {run.file: run for run in load(folder)}
    matrix = Matrix(known, list(found.values()))
    for line in readme.read_text(encoding="utf-8").splitlines():
        for passed, total, link in _COUNT.findall(line) if _EARLIER not in line else ():
            run = found.get(link.removeprefix("reports/"))
            if run is None or run.about.get("suite") != today:
                yield f"README.md: {passed} of {total} is not of a run of suite {today}"
                continue
            counts = matrix.counts(run)["the target"]
            counted = counts["pass"], sum(counts[each] for each in (*VERDICTS, ""))
            if counted != (int(passed), int(total)):
                yield f"README.md: {passed} of {total}; {link} has {counted[0]} of {counted[1]}"


if __name__ == "__main__":
    sys.exit(main())
