"""Build MATRIX.md and the web site from the reports in a folder."""

from pathlib import Path

from spec_tests.site import markdown
from spec_tests.site.make import make, site_of
from spec_tests.site.matrix import Matrix

__all__ = ["build", "render_matrix"]


def build(folder: Path) -> str:
    """Write ``MATRIX.md`` and ``site/`` to ``folder``; return a sentence about the site."""
    (folder / "MATRIX.md").write_text(render_matrix(folder), encoding="utf-8")
    return make(folder, (), folder / "site")


def render_matrix(folder: Path) -> str:
    """Return the text of MATRIX.md, which shows only published runs."""
    site = site_of(folder)
    return markdown.page(Matrix.of(site.results.published, site.known))
