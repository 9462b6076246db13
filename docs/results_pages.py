"""The pages of published runs, in the theme of this site."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markupsafe import escape
from sphinx.application import Sphinx

from spec_tests.machine import clauses
from spec_tests.machine.clauses import Clause
from spec_tests.reporting import runs
from spec_tests.reporting.matrix import Matrix
from spec_tests.reporting.pages import Pages

__all__ = ["setup"]

REPORTS = Path(__file__).resolve().parents[1] / "reports"


def setup(app: Sphinx) -> None:
    """Add the pages."""
    app.connect("html-collect-pages", _collect_pages)


def _clause_address(clause: Clause) -> str:
    anchor = re.sub(r"[._]", "-", clause.id).lower()
    return f"specification/{clause.chapter}.html#{anchor}"


def _collect_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    matrix = Matrix(clauses.load(), runs.load(REPORTS))
    pages = Pages(matrix, lambda run: f"results/runs/{run.name}.html", _clause_address)
    script = '<script src="../_static/filter.js"></script>'
    yield _page("matrix", "The matrix", pages.render("matrix", root="../") + script)
    for run in matrix.columns:
        body = pages.render("run", root="../../", run=run, level=2)
        yield _page(f"runs/{run.name}", run.label, body)


def _page(name: str, title: str, body: str) -> tuple[str, dict[str, Any], str]:
    text = f'<div class="results"><h1>{escape(title)}</h1>\n{body}</div>'
    return f"results/{name}", {"title": escape(title), "body": text}, "page.html"
