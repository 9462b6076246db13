"""Build the site of a folder of reports, with the clauses and divergences of this suite."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from spec_tests.harness.conformance import clauses, register
from spec_tests.site import checked, runs
from spec_tests.site.build import Site, write

__all__ = ["FOLDER", "make", "site_of"]

#: The folder of a checkout that holds the published results and the site.
FOLDER = "reports"
_REGISTER = register.FOLDER / "torch.nn.parallel.toml"


def make(folder: Path | None, files: Sequence[Path], home: Path) -> str:
    """Write the site to ``home`` and return one sentence about it.

    Args:
        folder: Published runs; None for none.
        files: Unpublished verdicts.
        home: The folder of the site.

    Raises:
        checked.RefusedError: A file is broken, there is no run, or ``home`` holds other files.
    """
    site = site_of(folder, files)
    if not site.shelf.runs:
        raise checked.RefusedError("there is no run to show: name a file that --verdicts wrote")
    pages = write(site, home)
    return f"{pages} pages of {len(site.shelf.runs)} runs: {home / 'index.html'}"


def site_of(folder: Path | None, files: Sequence[Path] = ()) -> Site:
    """Return the data of the pages.

    Raises:
        checked.RefusedError: A file is broken.
    """
    records, titles = register.load(_REGISTER), register.titles(_REGISTER)
    shelf = runs.load(folder, files)
    return Site(shelf, clauses.load(), records, titles, _floors(folder))


def _floors(folder: Path | None) -> Mapping[str, float]:
    """Return the floors of the checkout that holds the reports; empty outside a checkout."""
    path = folder.parent / "bench" / "floors.toml" if folder else None
    if path is None or not path.exists():
        return {}
    found: dict[str, float] = tomllib.loads(path.read_text(encoding="utf-8"))["floors"]
    return found
