"""Write the pages of published results: MATRIX.md and BENCHMARKS.md."""

from pathlib import Path

from reports.publishing import benchmarks
from spec_tests.harness.conformance import clauses
from spec_tests.site import matrix, runs
from spec_tests.site.matrix import Matrix

__all__ = ["build", "render"]


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
