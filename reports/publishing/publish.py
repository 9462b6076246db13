"""Write one report: the folder ``results/<target>/torch-<release>_<hardware>``.

A report has the data of one run of the suite, or of several runs of the benchmarks on one machine.
It also has the environment of the runs and a summary that is generated from the data.
"""

import datetime
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from cpuinfo import get_cpu_info  # pytest-benchmark reads the processor's name in the same way

from bench import compare
from reports.publishing import benchmarks
from spec_tests.harness.conformance import clauses, verdicts
from spec_tests.harness.environment import interpreter
from spec_tests.site import floors, trend, validated_files
from spec_tests.site.markdown import escape
from spec_tests.site.ratios import ratios
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
    """Write the report ``<target>/torch-<release>_<hardware>`` to ``folder``; return its path.

    The name of a report on benchmarks ends in ``_bench``. An older report of the same name is
    removed first; a report on benchmarks keeps the ratios of the older ones in ``trend.json``.

    Args:
        sources: JSON files of pytest-benchmark, or one file of verdicts (JSON lines).
        target: The implementation that was run. None: as in the file of verdicts, else ``impl``.
        hardware: A word for the machine, such as ``h200``. None: the accelerator, such as ``sim``.
        folder: The folder of all reports.

    Raises:
        ValueError: A file is broken or has another format, or the files come from different
            machines or benchmarks, or a row is too noisy to judge.
    """
    suffixes = {source.suffix for source in sources}
    if suffixes == {".json"}:
        environment, files = _read_benchmarks(sources)
    elif suffixes == {".jsonl"} and len(sources) == 1:
        environment, files = _read_verdicts(sources[0])
    else:
        raise ValueError("expected benchmarks (*.json) or one file of verdicts (*.jsonl)")
    environment["target"] = target or environment.get("target", "impl")
    environment["hardware"] = hardware or environment.get("accelerator", "sim")
    environment["complete"] = True
    release = f"torch {_torch_release(environment)}"
    validated_files.validate(environment, "environment", sources[0])
    title = escape(f"# {environment['target']}, {release}, {environment['hardware']}")
    date = escape(environment["date"][:10])
    files["summary.md"] = f"{title}\n\n{date}. {files['summary.md']}\n"
    name = _report_name(environment, "benchmark.json" in files)
    report = folder / slug(str(environment["target"])) / name
    if "benchmark.json" in files:
        history = [*_read_history(report), trend.summarize(json.loads(files["benchmark.json"]))]
        validated_files.validate(history, "trend", sources[0])
        files["trend.json"] = json.dumps(history) + "\n"
    # Add environment.json last, so that it is written last: it marks a report as complete.
    files["environment.json"] = json.dumps(environment, indent=2) + "\n"
    _replace_report(report, files)
    return report


def _read_history(report: Path) -> list[Any]:
    """Return the ratios of earlier reports of the same name."""
    file = report / "trend.json"
    return list(validated_files.document(file, "trend")) if file.exists() else []


def _torch_release(environment: Mapping[str, Any]) -> str:
    """Return the release of PyTorch without its local version, such as ``+cpu``."""
    return str(environment["torch"]).partition("+")[0]


def _report_name(environment: Mapping[str, Any], is_bench: bool) -> str:
    name = slug(f"torch-{_torch_release(environment)}_{environment['hardware']}")
    return f"{name}_bench" if is_bench else name


def _replace_report(report: Path, files: Mapping[str, str]) -> None:
    shutil.rmtree(report, ignore_errors=True)
    report.mkdir(parents=True)
    for name, text in files.items():
        (report / name).write_text(text, encoding="utf-8")


def _read_benchmarks(sources: Sequence[Path]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the environment of the runs, and the report's files (name -> text)."""
    data = validated_files.validate(benchmarks.read_runs(sources), "benchmark", sources[0])
    _refuse_noise(data["runs"])
    rows = floors.find(floors.load(compare.FLOORS), data["machine"])
    machine, last = data["machine"], data["runs"][-1]
    environment = {
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
    files = {
        "benchmark.json": json.dumps(data, indent=1) + "\n",
        "summary.md": benchmarks.format_summary(data, rows),
    }
    if picture := benchmarks.draw_variants(data):
        files["variants.svg"] = picture
    return environment, files


def _refuse_noise(runs: Sequence[Mapping[str, Any]]) -> None:
    noisy = [ratio.group for run in runs for ratio in ratios(run, {}) if ratio.is_noisy]
    if noisy:
        raise ValueError(
            f"rows too noisy to judge: {len(noisy)}, such as {noisy[0]}; other processes used the "
            "processors: measure again on an idle machine"
        )


def _read_verdicts(source: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the environment of the run, and the report's files (name -> text).

    The environment comes from the file's header. Without a header, describe this machine.
    """
    header, tests = validated_files.read_verdicts(source)
    environment = {**(header or _read_environment()), "tests": len(tests)}
    clause_verdicts = verdicts.by_clause(tests)
    suite = environment.get("suite") or clauses.suite_version(clause_verdicts)
    cores = f", {environment['cores']} cores" if environment.get("cores") else ""
    machine = f"{environment.get('processor', environment.get('machine', 'unknown'))}{cores}"
    python = environment.get("python", "unknown")
    versions = f"torch {environment['torch']}, Python {python}; suite {suite}"
    table = "\n".join(verdicts.table(clause_verdicts))
    summary = f"{escape(f'{machine}; {versions}')}.\n\n```text\n{table}\n```"
    text = source.read_text(encoding="utf-8")
    return environment, {"verdicts.jsonl": text, "summary.md": summary}


def _read_environment() -> dict[str, Any]:
    """Return the versions, processor and date of this machine, and the commit of this checkout."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "python": interpreter.python_version(),
        "machine": platform.machine(),
        "processor": str(get_cpu_info().get("brand_raw", platform.processor())),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "commit": _run_git("rev-parse", "HEAD"),
        "dirty": bool(_run_git("status", "--porcelain", "--untracked-files=no")),
    }


def _run_git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=RESULTS.parent, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
