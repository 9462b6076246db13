"""The site of a folder of reports, with the specification and the register of this suite."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from spec_tests.harness.conformance import clauses, register
from spec_tests.site import checked, runs
from spec_tests.site.build import Site, write

__all__ = ["FOLDER", "make", "site_of"]

#: In a checkout: published runs, and below it the site.
FOLDER = "reports"
_REGISTER = register.FOLDER / "torch.nn.parallel.toml"


def make(folder: Path | None, files: Sequence[Path], home: Path) -> str:
    """Write the site to ``home`` and say in one sentence what is there.

    Args:
        folder: Published runs; None for none.
        files: Verdicts that nobody has published.
        home: Where the site goes.

    Raises:
        checked.RefusedError: a file is broken, nothing is there to be shown, or ``home`` holds
            something else.
    """
    site = site_of(folder, files)
    if not site.shelf.runs:
        raise checked.RefusedError("there is no run to show: name a file that --verdicts wrote")
    pages = write(site, home)
    return f"{pages} pages of {len(site.shelf.runs)} runs: {home / 'index.html'}"


def site_of(folder: Path | None, files: Sequence[Path] = ()) -> Site:
    """What the pages are made of.

    Raises:
        checked.RefusedError: a file is broken.
    """
    records, titles = register.load(_REGISTER), register.titles(_REGISTER)
    shelf = runs.load(folder, files)
    return Site(shelf, clauses.load(), records, titles, _floors(folder))


def _floors(folder: Path | None) -> Mapping[str, float]:
    """Those of the checkout that the reports lie in."""
    path = folder.parent / "bench" / "floors.toml" if folder else None
    if path is None or not path.exists():
        return {}
    found: dict[str, float] = tomllib.loads(path.read_text(encoding="utf-8"))["floors"]
    return found
