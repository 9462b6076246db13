"""Build the site of a folder of reports, with the clauses and divergences of this suite."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from spec_tests.harness.conformance import clauses, register
from spec_tests.site import runs, validated_files
from spec_tests.site.build import Site, write

__all__ = ["FOLDER", "make", "site_of"]

#: The folder with the published results and the site, in the root of a checkout.
FOLDER = "reports"
_REGISTER = register.FOLDER / "torch.nn.parallel.toml"


def make(reports: Path | None, verdict_files: Sequence[Path], folder: Path) -> str:
    """Write the site to ``folder`` and return a sentence with the number of pages.

    Args:
        reports: The folder of published runs; None for no published runs.
        verdict_files: Files of verdicts of unpublished runs.
        folder: The folder of the site.

    Raises:
        validated_files.RefusedError: A file is not valid, there is no run, or ``folder`` contains
            other files.
    """
    site = site_of(reports, verdict_files)
    if not site.results.runs:
        raise validated_files.RefusedError(
            "there is no run to show: name a file of `run --verdicts FILE`"
        )
    pages = write(site, folder)
    return f"wrote {pages} pages for {len(site.results.runs)} runs: {folder / 'index.html'}"


def site_of(reports: Path | None, verdict_files: Sequence[Path] = ()) -> Site:
    """Return the data of the pages.

    Raises:
        validated_files.RefusedError: A file is not valid.
    """
    records, titles = register.load(_REGISTER), register.titles(_REGISTER)
    results = runs.load(reports, verdict_files)
    return Site(results, clauses.load(), records, titles, _load_floors(reports))


def _load_floors(reports: Path | None) -> Mapping[str, float]:
    """Return the least allowed ratio of each group of benchmarks; empty outside a checkout."""
    path = reports.parent / "bench" / "floors.toml" if reports else None
    if path is None or not path.exists():
        return {}
    found: dict[str, float] = tomllib.loads(path.read_text(encoding="utf-8"))["floors"]
    return found
