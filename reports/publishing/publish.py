"""Publish the verdicts of a run of the suite or the times of benchmarks, and write their pages."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import benchmark_files
from reports.publishing import benchmarks
from spec_tests.machine import clauses
from spec_tests.reporting import matrix, published_runs, runs
from spec_tests.reporting.matrix import Matrix
from spec_tests.reporting.runs import slug

REPORTS = Path(__file__).resolve().parents[1]
#: A count of passed clauses in the README, with the file of the run.
_COUNT = re.compile(r"\[(\d+ of \d+)\]\(([^)]+)\)")


def publish(
    sources: Sequence[Path],
    target: str | None = None,
    hardware: str | None = None,
    *,
    folder: Path = REPORTS,
) -> Path:
    """Write ``results/<target>/torch-<release>_<hardware>.json``; return the path.

    A file of benchmarks is written to ``benchmarks`` in place of ``results``. An older file of the
    same name is replaced.

    Args:
        sources: JSON files of pytest-benchmark, or one file of verdicts (JSON lines).
        target: The implementation that was run. None: as in the file of verdicts, else ``impl``.
        hardware: A word for the machine, such as ``h200``. None: the accelerator, such as ``sim``.
        folder: The folder of reports.

    Raises:
        ValueError: A file is broken or has another format, or the files come from different
            machines or benchmarks.
    """
    suffixes = {source.suffix for source in sources}
    if suffixes == {".json"}:
        return _publish_benchmarks(sources, target or "impl", hardware or "sim", folder)
    if suffixes == {".jsonl"} and len(sources) == 1:
        about, found = runs.read(sources[0])
        about |= {"target": target or about["target"], "hardware": hardware or about["hardware"]}
        path = _path(folder / "results", about["target"], about["torch"], about["hardware"])
        return _write(path, published_runs.publish(about, found))
    raise ValueError("expected benchmarks (*.json) or one file of verdicts (*.jsonl)")


def _publish_benchmarks(sources: Sequence[Path], target: str, hardware: str, folder: Path) -> Path:
    data = benchmark_files.combine(sources)
    path = _path(folder / "benchmarks", target, data["machine"]["torch"], hardware)
    return _write(path, benchmark_files.publish({"target": target, "hardware": hardware}, data))


def _path(folder: Path, target: str, torch: str, hardware: str) -> Path:
    """Return the path of a published file. The release has no local version, such as ``+cpu``."""
    name = slug(f"torch-{torch.partition('+')[0]}_{hardware}")
    return folder / slug(target) / f"{name}.json"


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def build(folder: Path) -> list[Path]:
    """Write the pages to ``folder``; return their paths."""
    pages = render(folder)
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    return list(pages)


def render(folder: Path) -> dict[Path, str]:
    """Return the text of each page of the results in ``folder``."""
    return {
        folder / "MATRIX.md": matrix.format_page(Matrix(clauses.load(), runs.load(folder))),
        folder / "BENCHMARKS.md": benchmarks.format_page(benchmarks.load(folder)),
    }


def check_readme(readme: Path, folder: Path = REPORTS) -> Iterator[str]:
    """Yield a text for each count in the README that is not that of a run of today's suite.

    A line with a count says that it is of an earlier suite, or links the file of its run.
    """
    shown = Matrix(clauses.load(), runs.load(folder))
    today = clauses.suite_version(shown.clauses)
    found = {run.file: run for run in shown.columns if run.about.get("suite") == today}
    for line in readme.read_text(encoding="utf-8").splitlines():
        for count, link in _COUNT.findall(line) if "an earlier suite" not in line else ():
            run = found.get(link.removeprefix("reports/"))
            counts = shown.counts(run)["the target"] if run else None
            if counts is None:
                yield f"README.md: {count} is not of a run of suite {today}"
            elif count != (right := f"{counts['pass']} of {counts.total()}"):
                yield f"README.md: {count}; {link} has {right}"
