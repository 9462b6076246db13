"""The whole site: every page by its address, and how they are written."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from spec_tests.harness.conformance.clauses import Clause
from spec_tests.harness.conformance.register import Divergence
from spec_tests.harness.conformance.verdicts import VERDICTS
from spec_tests.site import charts, checked, evidence, exports, ratios, speed
from spec_tests.site.matrix import OFF, Matrix, differences, history
from spec_tests.site.runs import Bench, Run, Shelf
from spec_tests.site.slugs import slug

__all__ = ["Site", "write"]

HERE = Path(__file__).parent
#: Says in a folder that it was made here, so that it may be made anew.
_MARK = ".made-by-parallel-conformance"


@dataclass(frozen=True)
class Site:
    """What the pages are made of.

    Args:
        shelf: The runs.
        known: The specification.
        divergences: The records of the register.
        titles: What each divergence is about.
        floors: The least ratio of benchmarks, by group.
    """

    shelf: Shelf
    known: Mapping[str, Clause]
    divergences: Sequence[Divergence]
    titles: Mapping[str, str]
    floors: Mapping[str, float]

    @cached_property
    def matrix(self) -> Matrix:
        """The newest runs."""
        return Matrix.of(self.shelf, self.known)

    def files(self) -> Iterator[tuple[str, str]]:
        """Address and text of everything but what is copied."""
        yield from self._pages()
        for chapter, members in self.matrix.chapters.items():
            yield self._page(
                f"clauses/{chapter}.html", "chapter", chapter=chapter, clauses=members
            )
        for run in self.shelf.runs:
            yield self._page(f"runs/{run.name}.html", "run", run=run)
        for before, after in [*combinations(self.shelf.columns, 2), *history(self.shelf)]:
            changes = differences(self.matrix.clauses.values(), before, after)
            address = f"differences/{difference_name(before, after)}.html"
            about = {"before": before, "after": after, "changes": changes}
            yield self._page(address, "difference", **about)
        yield from self._data()

    def _pages(self) -> Iterator[tuple[str, str]]:
        matrix = self.matrix
        yield self._page("index.html", "index")
        yield self._page("matrix.html", "matrix")
        by_target = matrix.only_here(lambda run: str(run.about["target"]))
        by_column = matrix.only_here(lambda run: run.label)
        kinds = {"implementation": by_target, "column": by_column}
        yield self._page("only-here.html", "only_here", kinds=kinds)
        yield self._page("all-agree.html", "all_agree", agreed=matrix.agreed())
        yield self._page("differences.html", "differences", history=history(self.shelf))
        yield self._page("divergences.html", "divergences", records=self._records())
        yield self._page("benchmarks.html", "benchmarks", machines=list(self._machines()))
        yield self._page("data.html", "data")

    def _count(self, before: Run, after: Run) -> int:
        return len(differences(self.matrix.clauses.values(), before, after))

    def _records(self) -> dict[str, list[Divergence]]:
        found: dict[str, list[Divergence]] = {name: [] for name in self.titles}
        for record in self.divergences:
            found.setdefault(record.id, []).append(record)
        return found

    def _machines(self) -> Iterator[Mapping[str, Any]]:
        """For each target and machine the newest benchmarks, and how they came about."""
        kinds: dict[tuple[str, str], list[Bench]] = {}
        for bench in self.shelf.benches:
            kind = str(bench.about["target"]), str(bench.about["hardware"])
            kinds.setdefault(kind, []).append(bench)
        for (target, hardware), benches in kinds.items():
            yield {
                "name": f"{target} on {hardware}",
                "bench": benches[-1],
                "rows": speed.rows(benches[-1], self.floors),
                "curves": speed.curves(benches[-1]),
                "peaks": speed.peaks(benches[-1]),
                "trends": speed.trends(benches, self.floors),
            }

    def _data(self) -> Iterator[tuple[str, str]]:
        yield "data/matrix.csv", exports.matrix_csv(self.matrix)
        for run in self.shelf.runs:
            yield f"data/{run.name}.csv", exports.run_csv(run)
            yield f"data/{run.name}.jsonl", exports.run_jsonl(run)
            yield f"data/{run.name}.badge.json", exports.badge(run)
        for bench in self.shelf.benches:
            yield f"data/{bench.name}.csv", exports.bench_csv(bench)

    def _page(self, address: str, template: str, **values: Any) -> tuple[str, str]:
        values["root"] = "../" * address.count("/")
        values["address"] = address
        return address, self._environment.get_template(f"{template}.html").render(values)

    @cached_property
    def _environment(self) -> Environment:
        loader = FileSystemLoader(HERE / "templates")
        made = Environment(
            loader=loader,
            autoescape=True,  # a failing call may hold anything
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        keys = {run.name: _letters(place) for place, run in enumerate(self.matrix.columns)}
        made.globals.update(
            shelf=self.shelf,
            matrix=self.matrix,
            verdicts=VERDICTS,
            off=OFF,
            titles=self.titles,
            divergences_of=self._divergences_of,
            charts=charts,
            evidence=evidence,
            ratios=ratios,
            keys=keys,
            slug=slug,
            difference_name=difference_name,
            count_differences=self._count,
        )
        return made

    def _divergences_of(self, clause: str) -> list[Divergence]:
        return [record for record in self.divergences if record.clause == clause]


def difference_name(before: Run, after: Run) -> str:
    """The name of the page of a difference."""
    return f"{before.name}..{after.name}"


def _letters(place: int) -> str:
    """A for 0, Z for 25, AA for 26."""
    rest, last = divmod(place, 26)
    return (_letters(rest - 1) if rest else "") + chr(ord("A") + last)


def write(site: Site, home: Path) -> int:
    """Make the site in ``home``, anew if it was made there before; return the number of pages.

    Raises:
        checked.RefusedError: the folder holds something else.
    """
    if home.exists() and any(home.iterdir()) and not (home / _MARK).exists():
        raise checked.RefusedError(f"{home} holds something else than a site; name another folder")
    files = dict(site.files())  # all are made before the old ones go
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    (home / _MARK).touch()
    for address, text in files.items():
        path = home / address
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    shutil.copytree(HERE / "static", home / "static")
    for schema in sorted(checked.SCHEMAS.glob("*.json")):
        shutil.copy(schema, home / "data" / schema.name)
    return sum(address.endswith(".html") for address in files)
