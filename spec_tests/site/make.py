"""Build the site of a folder of reports, with the clauses of this suite."""

from collections.abc import Sequence
from pathlib import Path

from spec_tests.harness.conformance import clauses
from spec_tests.site import floors, runs, validated_files
from spec_tests.site.build import Site, write

__all__ = ["FOLDER", "make", "site_of"]

#: The folder with the published results and the site, in the root of a checkout.
FOLDER = "reports"


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
    results = runs.load(reports, verdict_files)
    # Only a checkout has floors.
    all_floors = floors.load(reports.parent / "bench" / "floors.toml") if reports else []
    return Site(results, clauses.load(), all_floors)
