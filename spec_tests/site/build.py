"""Render the web pages and write the files of the site."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from spec_tests.harness.conformance.clauses import Clause
from spec_tests.harness.conformance.verdicts import VERDICTS
from spec_tests.site import charts, evidence, floors, ratios, speed, validated_files
from spec_tests.site.floors import Floors
from spec_tests.site.matrix import Matrix
from spec_tests.site.runs import Results
from spec_tests.site.slugs import slug
from spec_tests.site.trend import trends

__all__ = ["Site", "write"]

HERE = Path(__file__).parent
#: The name of an empty file in each site. `write` replaces only folders that contain it.
_MARKER = ".made-by-parallel-conformance"


@dataclass(frozen=True)
class Site:
    """The data of the pages.

    Args:
        results: The runs and benchmarks.
        known: The clauses by id.
        floors: The least allowed ratios of benchmarks, for each machine with such ratios.
    """

    results: Results
    known: Mapping[str, Clause]
    floors: Sequence[Floors]

    @cached_property
    def matrix(self) -> Matrix:
        """The matrix of the newest runs."""
        return Matrix.of(self.results, self.known)

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the address and the text of each rendered file."""
        yield from self._single_pages()
        for chapter, members in self.matrix.chapters.items():
            yield self._render_page(
                f"clauses/{chapter}.html", "chapter", chapter=chapter, clauses=members
            )
        for run in self.results.runs:
            yield self._render_page(f"runs/{run.name}.html", "run", run=run)

    def _single_pages(self) -> Iterator[tuple[str, str]]:
        yield self._render_page("index.html", "index")
        yield self._render_page("matrix.html", "matrix")
        yield self._render_page(
            "benchmarks.html", "benchmarks", machines=list(self._benchmark_sections())
        )

    def _benchmark_sections(self) -> Iterator[Mapping[str, Any]]:
        """Yield the values for the section of each benchmark report on the page of benchmarks."""
        for bench in self.results.benches:
            torch = str(bench.about["torch"]).partition("+")[0]
            variants = speed.variants(bench)
            yield {
                "name": f"{bench.about['target']}, torch {torch}, {bench.about['hardware']}",
                "bench": bench,
                "rows": speed.rows(bench, floors.find(self.floors, bench.data["machine"])),
                "times_by_size": speed.times_by_size(bench),
                "peaks": [] if variants else speed.peaks(bench),
                "variants": variants,
                "trends": trends(bench.history),
            }

    def _render_page(self, address: str, template: str, **values: Any) -> tuple[str, str]:
        values["root"] = "../" * address.count("/")
        values["address"] = address
        return address, self._template_environment.get_template(f"{template}.html").render(values)

    @cached_property
    def _template_environment(self) -> Environment:
        loader = FileSystemLoader(HERE / "templates")
        environment = Environment(
            loader=loader,
            autoescape=True,  # the text of a failing call may contain HTML
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        keys = {run.name: _column_letters(index) for index, run in enumerate(self.matrix.columns)}
        environment.globals.update(
            results=self.results,
            matrix=self.matrix,
            verdicts=VERDICTS,
            charts=charts,
            evidence=evidence,
            ratios=ratios,
            keys=keys,
            slug=slug,
        )
        return environment


def _column_letters(index: int) -> str:
    """Return the letters that stand for a column: A for 0, Z for 25, AA for 26."""
    quotient, last = divmod(index, 26)
    return (_column_letters(quotient - 1) if quotient else "") + chr(ord("A") + last)


def write(site: Site, folder: Path) -> int:
    """Write the site to ``folder``, replace an older site, and return the number of pages.

    Raises:
        validated_files.RefusedError: The folder holds other files.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARKER).exists():
        raise validated_files.RefusedError(
            f"{folder} contains other files than a site; name another folder"
        )
    # Render all pages before the old site is removed: rendering may raise an error.
    files = dict(site.files())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _MARKER).touch()
    for address, text in files.items():
        path = folder / address
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    shutil.copytree(HERE / "static", folder / "static")
    return sum(address.endswith(".html") for address in files)
