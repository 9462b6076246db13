"""Runs: what was judged, where and when, and what came of it; read from folders and files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from spec_tests.harness.conformance.verdicts import by_clause
from spec_tests.site import checked
from spec_tests.site.slugs import slug

__all__ = ["Bench", "Run", "Shelf", "load"]

#: Below the folder of reports: runs of this machine that nobody has published.
LOCAL = "local"
_FIRST = ("torch.nn.parallel", "impl")


@dataclass(frozen=True)
class Run:
    """One run of the suite.

    Args:
        name: Of its folder or file; stands in addresses.
        about: What is known of it: ``target``, ``torch``, ``hardware``, ``date`` at least.
        tests: One mapping a test and clause, as in the file.
        published: Whether it has a folder of its own.
    """

    name: str
    about: Mapping[str, Any]
    tests: Sequence[Mapping[str, Any]] = field(repr=False)
    published: bool = True

    @cached_property
    def verdicts(self) -> dict[str, str]:
        """The verdict of each clause that it judged."""
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
        """The implementation, with its version if that is not PyTorch's."""
        name, version = str(self.about["target"]), self.version
        return f"{name} {version}" if version else name

    @property
    def version(self) -> str:
        """The target's version; empty if unknown or that of PyTorch."""
        version = str(self.about.get("version", "")).partition("+")[0]
        return "" if version == self.release else version

    @property
    def release(self) -> str:
        """PyTorch's version without what says how it was built."""
        return str(self.about["torch"]).partition("+")[0]

    @property
    def hardware(self) -> str:
        """A word for the machine."""
        return str(self.about["hardware"])

    @property
    def date(self) -> str:
        """Day and time, as far as known."""
        return str(self.about["date"])

    @property
    def label(self) -> str:
        """What its column is called."""
        label = f"{self.target} · torch {self.release} · {self.hardware}"
        return label if self.published else f"{label} · not published"

    @property
    def kind(self) -> tuple[str, str, str, bool]:
        """What is alike in runs of which only the newest has a column.

        A run that is not published may be of a few clauses: it takes no published one's place.
        """
        return self.target, self.release, self.hardware, self.published


@dataclass(frozen=True)
class Bench:
    """Published benchmarks: some runs of one machine."""

    name: str
    about: Mapping[str, Any]
    data: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Shelf:
    """All that is shown, oldest first."""

    runs: Sequence[Run]
    benches: Sequence[Bench]

    @property
    def columns(self) -> list[Run]:
        """The newest run of each kind: implementation, release of PyTorch, machine."""
        newest = {run.kind: run for run in self.runs}
        return sorted(newest.values(), key=_place)


def _place(run: Run) -> tuple[int, str, list[tuple[int, str]], str, bool]:
    """The reference first, then impl, then the others by name; older releases first."""
    name = str(run.about["target"])
    first = _FIRST.index(name) if name in _FIRST else len(_FIRST)
    return first, run.target, _numbers(run.release), run.hardware, not run.published


def _numbers(release: str) -> list[tuple[int, str]]:
    """2.9 before 2.13."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in release.split(".")]


def load(folder: Path | None, files: Sequence[Path] = ()) -> Shelf:
    """What lies in a folder of reports, in its folder ``local``, and in the files named.

    Raises:
        checked.RefusedError: something is broken, or no file of results.
    """
    homes = sorted(path.parent for path in folder.glob("*/environment.json")) if folder else []
    loose = sorted((folder / LOCAL).glob("*.jsonl")) if folder else []
    runs = [_published(home) for home in homes if (home / "verdicts.jsonl").exists()]
    for path in dict.fromkeys(path.resolve() for path in [*loose, *files]):
        runs.append(_loose(path, {run.name for run in runs}))
    benches = [_bench(home) for home in homes if (home / "benchmark.json").exists()]
    return Shelf(
        sorted(runs, key=lambda run: (run.date, run.name)),
        sorted(benches, key=lambda bench: (str(bench.about["date"]), bench.name)),
    )


def _published(home: Path) -> Run:
    about = checked.document(home / "environment.json", "environment")
    said, tests = checked.verdicts(home / "verdicts.jsonl")
    return Run(slug(home.name), {**said, **about}, tests)


def _loose(path: Path, taken: set[str]) -> Run:
    said, tests = checked.verdicts(path)
    if not said:
        raise checked.RefusedError(
            f"{path} does not say in its first line what was run: publish it with "
            "python -m reports.publish, which asks for target and hardware"
        )
    name = wanted = slug(path.stem)
    count = 1
    while name in taken:
        count += 1
        name = f"{wanted}-{count}"
    return Run(name, {"hardware": said["accelerator"], **said}, tests, published=False)


def _bench(home: Path) -> Bench:
    about = checked.document(home / "environment.json", "environment")
    data = checked.document(home / "benchmark.json", "benchmark")
    return Bench(slug(home.name), about, data)
