"""Read runs and benchmarks from reports and from files of verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from spec_tests.harness.conformance.clauses import suite_version
from spec_tests.harness.conformance.verdicts import by_clause
from spec_tests.site import validated_files
from spec_tests.site.slugs import slug

__all__ = ["RESULTS", "BenchmarkReport", "Results", "Run", "load"]

#: Pattern of the published reports, relative to the folder of reports.
RESULTS = "results/*/*/environment.json"
#: The subfolder of the folder of reports with unpublished runs of this machine.
LOCAL = "local"
#: The targets whose columns come first.
_FIRST_TARGETS = ("torch.nn.parallel", "impl")


@dataclass(frozen=True)
class Run:
    """One run of the suite.

    Args:
        name: The name in addresses of pages, made from the name of the folder or file.
        about: The metadata, at least ``target``, ``torch``, ``hardware`` and ``date``.
        tests: The tests as in the file of verdicts.
        folder: The report's path below the folder of reports; empty for an unpublished run.
    """

    name: str
    about: Mapping[str, Any]
    tests: Sequence[Mapping[str, Any]] = field(repr=False)
    folder: str = ""

    @property
    def published(self) -> bool:
        """Whether the run has a report in the folder of reports."""
        return bool(self.folder)

    @property
    def suite(self) -> str:
        """The version of the suite; computed from the run's clauses if the file has none."""
        return str(self.about.get("suite") or suite_version(self.verdicts))

    @cached_property
    def verdicts(self) -> dict[str, str]:
        """The verdict of each clause of the run."""
        return by_clause([dict(test) for test in self.tests])

    @cached_property
    def tests_of(self) -> dict[str, list[Mapping[str, Any]]]:
        """The tests of each clause."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        for test in self.tests:
            if "clause" in test:
                found.setdefault(test["clause"], []).append(test)
        return found

    @property
    def target(self) -> str:
        """The name of the implementation, followed by `version` if there is one."""
        name, version = str(self.about["target"]), self.version
        return f"{name} {version}" if version else name

    @property
    def version(self) -> str:
        """The version of the target; empty if unknown or equal to PyTorch's version."""
        version = str(self.about.get("version", "")).partition("+")[0]
        return "" if version == self.release else version

    @property
    def release(self) -> str:
        """The version of PyTorch without the name of the build."""
        return str(self.about["torch"]).partition("+")[0]

    @property
    def hardware(self) -> str:
        """The name of the machine."""
        return str(self.about["hardware"])

    @property
    def date(self) -> str:
        """Date and time in ISO 8601 format."""
        return str(self.about["date"])

    @property
    def label(self) -> str:
        """The title of the column of the run."""
        label = f"{self.target} · torch {self.release} · {self.hardware}"
        return label if self.published else f"{label} · not published"

    @property
    def kind(self) -> tuple[str, str, str, bool]:
        """Implementation, release of PyTorch, machine, and whether the run is published.

        Only the newest run of a kind has a column. An unpublished run does not replace a published
        one, because it may have few clauses.
        """
        return self.target, self.release, self.hardware, self.published


@dataclass(frozen=True)
class BenchmarkReport:
    """A report of benchmarks: several runs on one machine.

    Args:
        name: The name in addresses of pages, made from the name of the folder.
        about: The metadata.
        data: The runs.
        history: The ratios of this and of earlier reports, oldest first.
    """

    name: str
    about: Mapping[str, Any]
    data: Mapping[str, Any] = field(repr=False)
    history: Sequence[Mapping[str, Any]] = field(default=(), repr=False)


@dataclass(frozen=True)
class Results:
    """All runs and benchmarks, oldest first."""

    runs: Sequence[Run]
    benches: Sequence[BenchmarkReport]

    @property
    def published(self) -> "Results":
        """The published runs, and all benchmarks."""
        return Results([run for run in self.runs if run.published], self.benches)

    @property
    def newest(self) -> list[Run]:
        """The newest run of each kind: implementation, release of PyTorch, machine."""
        newest = {run.kind: run for run in self.runs}
        return sorted(newest.values(), key=_column_sort_key)


def _column_sort_key(run: Run) -> tuple[int, str, list[tuple[int, str]], str, bool]:
    """Return the sort key of a column: reference, impl, other targets; older releases first."""
    name = str(run.about["target"])
    first = _FIRST_TARGETS.index(name) if name in _FIRST_TARGETS else len(_FIRST_TARGETS)
    return first, run.target, _release_key(run.release), run.hardware, not run.published


def _release_key(release: str) -> list[tuple[int, str]]:
    """Return the sort key of a release: 2.9 comes before 2.13."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in release.split(".")]


def load(folder: Path | None, files: Sequence[Path] = ()) -> Results:
    """Return the reports in ``folder``, and unpublished runs in ``folder/local`` and ``files``.

    Raises:
        validated_files.RefusedError: A file is not valid, or contains no results.
    """
    reports = sorted(path.parent for path in folder.glob(RESULTS)) if folder else []
    local = sorted((folder / LOCAL).glob("*.jsonl")) if folder else []
    runs = [_load_published(report) for report in reports if (report / "verdicts.jsonl").exists()]
    for path in dict.fromkeys(path.resolve() for path in [*local, *files]):
        runs.append(_load_unpublished(path, {run.name for run in runs}))
    benches = [
        _load_benchmarks(report) for report in reports if (report / "benchmark.json").exists()
    ]
    return Results(
        sorted(runs, key=lambda run: (run.date, run.name)),
        sorted(benches, key=lambda bench: (str(bench.about["date"]), bench.name)),
    )


def _load_published(report: Path) -> Run:
    about = validated_files.document(report / "environment.json", "environment")
    header, tests = validated_files.read_verdicts(report / "verdicts.jsonl")
    folder = "/".join(report.parts[-3:])
    return Run(_report_name(report), {**header, **about}, tests, folder)


def _report_name(report: Path) -> str:
    """Return the name of a report in addresses: ``impl.torch-2.13.0_sim``."""
    return slug(".".join(report.parts[-2:]))


def _load_unpublished(path: Path, taken_names: set[str]) -> Run:
    header, tests = validated_files.read_verdicts(path)
    if not header:
        raise validated_files.RefusedError(
            f"{path} has no header: publish it with python -m reports add, "
            "which takes --target and --hardware"
        )
    name = stem = slug(path.stem)
    count = 1
    while name in taken_names:
        count += 1
        name = f"{stem}-{count}"
    return Run(name, {"hardware": header["accelerator"], **header}, tests)


def _load_benchmarks(folder: Path) -> BenchmarkReport:
    about = validated_files.document(folder / "environment.json", "environment")
    data = validated_files.document(folder / "benchmark.json", "benchmark")
    trend = folder / "trend.json"
    history = validated_files.document(trend, "trend") if trend.exists() else ()
    return BenchmarkReport(_report_name(folder), about, data, history)
