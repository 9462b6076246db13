"""Write one report: the folder ``results/<target>/torch-<release>_<hardware>``.

A report holds the data of one run of the suite, or of several runs of the benchmarks on one
machine, its environment, and a summary that is generated from the data.
"""

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
from cpuinfo import get_cpu_info  # pytest-benchmark reads the processor's name in the same way

from bench import compare
from reports.publishing import benchmarks
from spec_tests.harness.conformance import clauses, verdicts
from spec_tests.harness.environment import interpreter
from spec_tests.site import checked
from spec_tests.site.slugs import slug

__all__ = ["RESULTS", "publish"]

RESULTS = Path(__file__).resolve().parents[1] / "results"


def publish(
    sources: Sequence[Path],
    target: str | None = None,
    hardware: str | None = None,
    *,
    folder: Path = RESULTS,
) -> Path:
    """Write ``<target>/torch-<release>_<hardware>`` below ``folder`` and return its path.

    The name of a report on benchmarks ends in ``_bench``. An older report of the same name is
    removed first.

    Args:
        sources: JSON files of pytest-benchmark, or one file of verdicts in JSON lines.
        target: The implementation that was run. None: what the verdicts say, or ``impl``.
        hardware: A word for the machine, such as ``sim`` or ``h200``. None: the accelerator.
        folder: The folder of all reports.

    Raises:
        ValueError: A file is broken or of neither kind, or the files do not belong together.
    """
    suffixes = {source.suffix for source in sources}
    if suffixes == {".json"}:
        about, files = _benchmark_files(sources)
    elif suffixes == {".jsonl"} and len(sources) == 1:
        about, files = _verdict_files(sources[0])
    else:
        raise ValueError("expected benchmarks (*.json) or one file of verdicts (*.jsonl)")
    about["target"] = target or about.get("target", "impl")
    about["hardware"] = hardware or about.get("accelerator", "sim")
    about["complete"] = True
    title = f"# {about['target']}, torch {_release(about)}, {about['hardware']}"
    files["summary.md"] = f"{title}\n\n{str(about['date'])[:10]}. {files['summary.md']}\n"
    # Written last, because its presence marks a complete report.
    files["environment.json"] = json.dumps(about, indent=2) + "\n"
    report = folder / slug(str(about["target"])) / _name(about, "benchmark.json" in files)
    _replace(report, files)
    return report


def _release(about: Mapping[str, Any]) -> str:
    return str(about["torch"]).partition("+")[0]


def _name(about: Mapping[str, Any], is_bench: bool) -> str:
    name = slug(f"torch-{_release(about)}_{about['hardware']}")
    return f"{name}_bench" if is_bench else name


def _replace(report: Path, files: Mapping[str, str]) -> None:
    shutil.rmtree(report, ignore_errors=True)
    report.mkdir(parents=True)
    for name, text in files.items():
        (report / name).write_text(text, encoding="utf-8")


def _benchmark_files(sources: Sequence[Path]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the environment of the runs, and the texts of data and summary."""
    data = benchmarks.read(sources)
    floors = tomllib.loads(compare.FLOORS.read_text(encoding="utf-8"))["floors"]
    machine, last = data["machine"], data["runs"][-1]
    about = {
        **_read_environment(),
        "runs": len(sources),
        "date": last["datetime"],
        "commit": last["commit"],
        "dirty": last["dirty"],
        "processor": machine["cpu"],
        "cores": machine["cores"],
        "torch": machine["torch"],
        "python": machine["python_version"],
    }
    text = json.dumps(data, indent=1) + "\n"
    return about, {"benchmark.json": text, "summary.md": benchmarks.format_summary(data, floors)}


def _verdict_files(source: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the environment of the run, and the texts of data and summary.

    A file without a header was written on this machine.
    """
    header, tests = checked.verdicts(source)
    about = {**(header or _read_environment()), "tests": len(tests)}
    found = verdicts.by_clause(tests)
    suite = about.get("suite") or clauses.suite_version(found)
    cores = f", {about['cores']} cores" if about.get("cores") else ""
    machine = f"{about.get('processor', about.get('machine', 'unknown'))}{cores}"
    versions = f"torch {about['torch']}, Python {about.get('python', 'unknown')}; suite {suite}"
    table = "\n".join(verdicts.table(found))
    summary = f"{machine}; {versions}.\n\n```text\n{table}\n```"
    text = source.read_text(encoding="utf-8")
    return about, {"verdicts.jsonl": text, "summary.md": summary}


def _read_environment() -> dict[str, Any]:
    """Return versions, processor and commit of this checkout."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "python": interpreter.python_version(),
        "machine": platform.machine(),
        "processor": str(get_cpu_info().get("brand_raw", platform.processor())),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=RESULTS.parent, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
