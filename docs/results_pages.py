"""The pages of published runs, as pages of this site.

``spec_tests.site`` renders the runs in ``reports/results`` as web pages with their own navigation.
This module puts the content of each page into the theme of this site, at ``results/ADDRESS``.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from spec_tests.site.build import HERE as SITE
from spec_tests.site.build import Site, write
from spec_tests.site.make import site_of

__all__ = ["entry_pages", "setup"]

DOCS = Path(__file__).resolve().parent
#: The folder of the pages below the root of the site.
FOLDER = "results"
_BUILT = DOCS / "_build" / "published_runs"
_MAIN = re.compile(r'<main id="main">\n<h1>(.*?)</h1>\n(.*)</main>', re.S)
_MENU = re.compile(r'<nav aria-label="Pages">.*?</nav>', re.S)


@cache
def _site() -> Site:
    """Return the data of the published runs, without unpublished runs of this machine."""
    site = site_of(DOCS.parent / "reports")
    return replace(site, results=site.results.published)


def entry_pages() -> Iterator[tuple[str, str]]:
    """Yield address and title of the overviews and of the page of each published run."""
    site = _site()
    yield "index.html", "All runs"
    yield "matrix.html", "The matrix, clause by clause, with a filter"
    yield "benchmarks.html", "Benchmarks, as charts"
    for run in site.results.runs:
        yield f"runs/{run.name}.html", f"{run.target}, torch {run.release}, {run.hardware}"


def setup(app: Sphinx) -> None:
    """Add the pages, and the other files that they need."""
    app.connect("builder-inited", _render)
    app.connect("html-collect-pages", _collect_pages)
    app.connect("build-finished", _copy_static_files)


def _render(app: Sphinx) -> None:
    write(_site(), _BUILT)
    styles = (SITE / "static" / "site.css").read_text(encoding="utf-8")
    (DOCS / "static").mkdir(exist_ok=True)
    (DOCS / "static" / "results.css").write_text(_scope_styles(styles), encoding="utf-8")


def _collect_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    for path in sorted(_BUILT.rglob("*.html")):
        address = path.relative_to(_BUILT).with_suffix("").as_posix()
        text = path.read_text(encoding="utf-8")
        title, content = _MAIN.search(text).groups()  # type: ignore[union-attr] # fails the build
        body = f'<div class="results"><h1>{title}</h1>{_menu(text)}{content}</div>'
        if "static/filter.js" in text:
            root = "../" * address.count("/")
            body += f'<script src="{root}static/filter.js"></script>'
        yield f"{FOLDER}/{address}", {"title": title, "body": body}, "page.html"


def _menu(text: str) -> str:
    """Return the menu of the pages of runs."""
    return _MENU.search(text)[0].replace('"Pages"', '"Published runs"')  # type: ignore[index] # fails the build


def _copy_static_files(app: Sphinx, error: Exception | None) -> None:
    """Copy the files that are no pages. Pages without context in the text of Sphinx's search."""
    if error or app.builder.name != "html":
        return
    shutil.copytree(_BUILT / "static", Path(app.outdir) / FOLDER / "static", dirs_exist_ok=True)


def _scope_styles(text: str) -> str:
    """Return the styles of the pages of runs, limited to ``.results``, with the theme's colours.

    The theme has a button for light and dark colours, which sets ``data-theme`` of the body.
    """
    light, dark = re.findall(r":root \{(.*?)\}", text, re.S)[:2]
    rest = re.sub(r"@media \(prefers-color-scheme: dark\) \{.*?\n\}\n", "", text, flags=re.S)
    rest = re.sub(r"^(:root|html|body) \{.*?\}\n", "", rest, flags=re.S | re.M)
    rest = re.sub(r"^@media print \{.*?\n\}\n?", "", rest, flags=re.S | re.M)
    light = light.replace("color-scheme: light dark;", "")
    return (
        "/* Made from spec_tests/site/static/site.css by docs/results_pages.py. */\n"
        f".results {{{light}}}\n"
        "@media (prefers-color-scheme: dark) {\n"
        f'  body:not([data-theme="light"]) .results {{{dark}}}\n}}\n'
        f'body[data-theme="dark"] .results {{{dark}}}\n'
        f".results {{\n{rest}}}\n"
    )
