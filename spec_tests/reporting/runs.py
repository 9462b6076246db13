"""Read runs of the suite."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from spec_tests.machine import clauses, register, verdict_file
from spec_tests.machine.conclusion import Conclusion, conclude
from spec_tests.machine.options import DEFAULT_TARGET, repeat_command
from spec_tests.machine.target import REFERENCE
from spec_tests.machine.verdicts import Evidence, find_evidence
from spec_tests.reporting.published_runs import read_published

#: The pattern of the published runs, relative to the folder of reports.
RESULTS = "results/*/*.json"


@dataclass(frozen=True)
class Run:
    """One run of the suite.

    Args:
        name: The name in addresses of pages, made from the name of the file.
        about: The metadata, at least ``target``, ``torch``, ``hardware`` and ``date``.
        evidence: The verdict of each clause, with its evidence.
        file: The path of a published run below the folder of reports; empty for other runs.
    """

    name: str
    about: Mapping[str, Any]
    evidence: Mapping[str, Evidence] = field(repr=False)
    file: str = ""

    @cached_property
    def verdicts(self) -> dict[str, str]:
        """The verdict of each clause of the run."""
        return {clause: own.verdict for clause, own in self.evidence.items()}

    @cached_property
    def conclusion(self) -> Conclusion:
        """Whether the run conforms to the suite."""
        suite, torch = str(self.about.get("suite", "")), str(self.about["torch"])
        return conclude(self.evidence, clauses.load(), suite, torch, self.about.get("examples"))

    @property
    def violated_by_reference(self) -> frozenset[str]:
        """The clauses that torch.nn.parallel of the run's PyTorch violates."""
        return register.violated_by_reference(str(self.about["torch"]))

    @property
    def target(self) -> str:
        """The name of the implementation, with its version if that is not PyTorch's."""
        name, version = str(self.about["target"]), str(self.about.get("version", ""))
        public = version.partition("+")[0]
        return name if public in ("", self.release) else f"{name} {public}"

    def compare_with_reference(self, clause: str) -> str:
        """Return a sentence if torch.nn.parallel violates a clause that the target violates."""
        if self.about["target"] == REFERENCE:
            return ""
        failure = self.evidence[clause].failure
        return register.compare_with_reference([clause], failure, str(self.about["torch"]))

    def repeat_command(self, clause: str) -> str:
        """Return the command that runs the test of a clause's failure as this run did."""
        return repeat_command(str(self.about["command"]), self.evidence[clause].test)

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
        """The title of the column of the run, with the name of a file that is not published."""
        label = f"{self.target} · torch {self.release} · {self.hardware}"
        return label if self.file else f"{label} · {self.name}"


def _column_sort_key(run: Run) -> tuple[bool, int, str, list[tuple[int, str]], str]:
    """Return the sort key of a column.

    Runs that are not published come first, then torch.nn.parallel, then the other implementations,
    then impl; older releases first.
    """
    # Releases of torch.nn.parallel that run with another PyTorch are "torch.nn.parallel 1.4.0".
    name, _, release = str(run.about["target"]).partition(" ")
    place = {REFERENCE: 0, DEFAULT_TARGET: 2}.get(name, 1)
    target = run.target if place else ""
    return bool(run.file), place, target, _release_key(release or run.release), run.hardware


def _release_key(release: str) -> list[tuple[int, str]]:
    """Return the sort key of a release: 2.9 comes before 2.13."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in release.split(".")]


def load(folder: Path | None, files: Sequence[Path] = ()) -> list[Run]:
    """Return the published runs in ``folder`` and the runs in ``files``, in order of the columns.

    Raises:
        input_files.RefusedError: A file is not valid, or contains no results.
    """
    published = sorted(folder.glob(RESULTS)) if folder else []
    runs = [
        Run(name_of(path), *read_published(path), "/".join(path.parts[-3:])) for path in published
    ]
    for path in dict.fromkeys(path.resolve() for path in files):
        runs.append(load_file(path, {run.name for run in runs}))
    return sorted(runs, key=_column_sort_key)


def read(path: Path) -> tuple[dict[str, Any], dict[str, Evidence]]:
    """Return the metadata of a run, and the verdict of each clause with its evidence.

    Args:
        path: A file of verdicts (``.jsonl``), or a published run (``.json``).

    Raises:
        input_files.RefusedError: The file cannot be read, or is not valid.
    """
    if path.suffix == ".json":
        return read_published(path)
    header, tests = verdict_file.read_run(path)
    number = len({test.test for test in tests})  # A test may have a verdict for each clause.
    return {"hardware": header["accelerator"], **header, "tests": number}, find_evidence(tests)


def name_of(path: Path) -> str:
    """Return the name of a published file in addresses: ``impl.torch-2.13.0_sim``."""
    return slug(f"{path.parent.name}.{path.stem}")


def load_file(path: Path, taken_names: Collection[str] = ()) -> Run:
    """Return the run in a file, with a name that is not taken.

    Raises:
        input_files.RefusedError: The file is not valid, or contains no results.
    """
    name = stem = slug(path.stem)
    count = 1
    while name in taken_names:
        count += 1
        name = f"{stem}-{count}"
    return Run(name, *read(path))


def slug(text: str) -> str:
    """Return ``text`` with one ``-`` for each run of characters that addresses should not have.

    Letters, digits, ``.``, ``_`` and ``-`` are kept.
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-") or "unnamed"
