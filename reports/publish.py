"""Publish one run as a folder of ``reports/``: environment, data, summary.

``python -m reports.publish FILE`` takes what a run wrote: pytest-benchmark's JSON
(``--benchmark-json``) or the suite's verdicts (``--verdicts``).
"""

import argparse
import datetime
import json
import platform
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path

import torch

from bench import compare
from spec_tests.harness import verdicts

HERE = Path(__file__).parent


def publish(source: Path, target: str, hardware: str, *, folder: Path = HERE) -> Path:
    """Write ``<date>_<target>_<hardware>`` below ``folder`` and return it.

    Args:
        source: JSON of pytest-benchmark, or JSON lines of verdicts.
        target: The package that the run was about.
        hardware: A word for the machine, such as ``sim`` or ``h200``.
        folder: Where reports lie.

    Raises:
        FileExistsError: the report exists; reports are immutable.
    """
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    home = folder / f"{today}_{target}_{hardware}"
    if source.suffix == ".json":
        home, name = home.with_name(f"{home.name}_bench"), "benchmark.json"
    else:
        name = "verdicts.jsonl"
    home.mkdir(parents=True)
    shutil.copyfile(source, home / name)
    summary = _of_benchmarks(source) if name == "benchmark.json" else _of_verdicts(source)
    (home / "summary.md").write_text(f"# {home.name}\n\n{summary}\n")
    about = {**environment(), "target": target, "hardware": hardware, "complete": True}
    (home / "environment.json").write_text(json.dumps(about, indent=2) + "\n")
    return home


def environment() -> dict[str, object]:
    """Versions, processor and commit of this run."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=HERE, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _of_benchmarks(source: Path) -> str:
    run = json.loads(source.read_text())
    floors = tomllib.loads(compare.FLOORS.read_text())["floors"]
    rows = [
        f"| {each.group} | {each.value:.2f} | {each.low:.2f} to {each.high:.2f} "
        f"| {'-' if each.floor is None else each.floor} | {'ok' if each.passes else 'below'} |"
        for each in compare.ratios(run, floors)
    ]
    head = ["| reference / impl | median | quartiles | floor | |", "|---|---|---|---|---|"]
    return "\n".join([*head, *rows])


def _of_verdicts(source: Path) -> str:
    tests = [json.loads(line) for line in source.read_text().splitlines()]
    return _block(verdicts.table(verdicts.by_clause(tests)))


def _block(lines: Sequence[str]) -> str:
    return "\n".join(["```text", *lines, "```"])


def main() -> None:
    """Publish the run that FILE holds."""
    parser = argparse.ArgumentParser(prog="python -m reports.publish", description=main.__doc__)
    parser.add_argument("file", type=Path, help="what the run wrote: *.json or *.jsonl")
    parser.add_argument("--target", default="impl", help="the package it was about")
    parser.add_argument("--hardware", default="sim", help="a word for the machine: sim, h200")
    options = parser.parse_args()
    try:
        print(publish(options.file, options.target, options.hardware))
    except OSError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
