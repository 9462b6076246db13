"""Publish a run, or several of one kind, as a folder of ``reports/``: environment, data, summary.

``python -m reports.publish FILE [FILE ...]`` takes what runs wrote: pytest-benchmark's JSON
(``--benchmark-json``), or the suite's verdicts (``--verdicts``).
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from cpuinfo import get_cpu_info  # what pytest-benchmark names the processor by

from bench import compare
from reports import benchmarks
from spec_tests.harness.conformance import verdicts
from spec_tests.harness.environment import interpreter
from spec_tests.site import checked
from spec_tests.site.slugs import slug

__all__ = ["publish"]

HERE = Path(__file__).parent


def publish(
    sources: Sequence[Path],
    target: str | None = None,
    hardware: str | None = None,
    *,
    folder: Path = HERE,
) -> Path:
    """Write ``<date>_<target>_<hardware>`` below ``folder`` and return it.

    Benchmarks end in ``_bench``. The second report of a day and kind ends in ``_2``, and so on:
    a report is never written over.

    Args:
        sources: JSON files of pytest-benchmark, or one file of verdicts in JSON lines.
        target: The package that the runs were about; None for what a file of verdicts says.
        hardware: A word for the machine, such as ``sim`` or ``h200``; None for the accelerator.
        folder: Where reports lie.

    Raises:
        ValueError: A file is broken or of neither kind, or the files do not belong together.
    """
    kinds = {source.suffix for source in sources}
    if kinds not in ({".json"}, {".jsonl"}) or (kinds == {".jsonl"} and len(sources) > 1):
        raise ValueError("expected files of benchmarks (*.json), or one of verdicts (*.jsonl)")
    bench = kinds == {".json"}
    said = {} if bench else checked.verdicts(sources[0])[0]
    target = target or said.get("target", "impl")
    hardware = hardware or said.get("accelerator", "sim")
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    name = f"{date}_{slug(target)}_{slug(hardware)}" + ("_bench" if bench else "")
    home = _new_folder(folder / name)
    found = _write_benchmarks(sources, home) if bench else _write_verdicts(sources[0], home, said)
    about = {**found, "target": target, "hardware": hardware, "complete": True}
    (home / "environment.json").write_text(json.dumps(about, indent=2) + "\n")
    return home


def _new_folder(wanted: Path) -> Path:
    home, count = wanted, 1
    while home.exists():
        count += 1
        home = wanted.with_name(f"{wanted.name}_{count}")
    home.mkdir(parents=True)
    return home


def _write_benchmarks(sources: Sequence[Path], home: Path) -> dict[str, object]:
    try:
        data = benchmarks.read(sources)
    except ValueError:
        home.rmdir()
        raise
    floors = tomllib.loads(compare.FLOORS.read_text())["floors"]
    (home / "benchmark.json").write_text(json.dumps(data, indent=1) + "\n")
    (home / "summary.md").write_text(f"# {home.name}\n\n{benchmarks.summary(data, floors)}\n")
    machine = data["machine"]
    return {
        **environment(),
        "runs": len(sources),
        "date": data["runs"][-1]["datetime"],
        "commit": data["runs"][-1]["commit"],
        "processor": machine["cpu"],
        "cores": machine["cores"],
        "torch": machine["torch"],
        "python": machine["python_version"],
    }


def _write_verdicts(source: Path, home: Path, said: Mapping[str, Any]) -> dict[str, object]:
    """Keep the file; one that says nothing of its run was made on this machine."""
    shutil.copyfile(source, home / "verdicts.jsonl")
    tests = verdicts.read(source)
    about = {**said} if said else environment()
    table = "\n".join(["```text", *verdicts.table(verdicts.by_clause(tests)), "```"])
    made = f"torch {about['torch']}, Python {about.get('python', 'unknown')}."
    where = [about.get("processor", about.get("machine")), f"{about.get('cores')} cores"]
    made = f"{', '.join(map(str, where))}; {made}"
    (home / "summary.md").write_text(f"# {home.name}\n\n{made}\n\n{table}\n")
    return {**about, "tests": len(tests)}


def environment() -> dict[str, object]:
    """Versions, processor and commit of this run."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "python": interpreter.name(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _processor() -> str:
    return str(get_cpu_info().get("brand_raw", platform.processor()))


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=HERE, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def main() -> None:
    """Publish the runs that the files hold."""
    parser = argparse.ArgumentParser(prog="python -m reports.publish", description=main.__doc__)
    parser.add_argument(
        "files", type=Path, nargs="+", help="what runs wrote: *.json, or a *.jsonl"
    )
    parser.add_argument("--target", help="the package (default: what the verdicts say, or impl)")
    parser.add_argument("--hardware", help="a word for the machine (default: the accelerator)")
    options = parser.parse_args()
    try:
        print(publish(options.files, options.target, options.hardware))
    except (OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
