"""Published results of ``tox -e consumers``, and the tables of the page that shows them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spec_tests.reporting import documents

__all__ = ["PAGE", "count_results", "read_results", "with_tables", "write_results"]

_HERE = Path(__file__).resolve().parents[1]
PAGE = _HERE.parent / "docs" / "from_data_parallel" / "programs.md"
#: The folder of the results of a table -> the beginning of the table.
_TABLES = {
    "consumers": "| package | what is trained |",
    "consumers/uses": "| package | use |",
    "models": "| model | package |",
}


def read_results(path: Path) -> dict[str, Any]:
    """Return the results in a file, by name."""
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return results


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Replace the results in a file, one line for each, and the tables of the page."""
    path.write_text(f"{documents.dump_entries(results)}\n", encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_tables(page: str) -> str:
    """Return the text of the page with the rows of the published results in its tables."""
    for folder, header in _TABLES.items():
        before, found, after = page.partition(header)
        names, separator, *_ = (found + after).splitlines()
        rest = after[after.index("\n\n") :]
        rows = [_format_row(_ROWS[folder](name, each)) for name, each in _results(folder).items()]
        page = before + "\n".join([names, separator, *rows]) + rest
    return page


def count_results() -> tuple[int, int, int]:
    """Return the numbers of models, of models that impl trains correctly, and of packages."""
    models = _results("models").values()
    right = sum(result["impl"] == "right" for result in models)
    return len(models), right, len(_results("consumers"))


def _results(folder: str) -> dict[str, Any]:
    return read_results(_HERE / folder / "results.json")


def _consumer_row(_: str, result: dict[str, Any]) -> Iterator[str]:
    yield from (result["package"], result["description"])
    yield from map(_format_losses, (result["reference"], result["impl"]))
    yield _format_difference(result["largest_difference"])


def _model_row(name: str, result: dict[str, Any]) -> Iterator[str]:
    losses = result["losses"]
    yield from (name, result["package"], result["covers"], f"{losses['one device']:.7g}")
    yield f"{losses['reference']:.7g}" if result["reference"] == "same" else "wrong"
    yield f"{losses['impl']:.7g}" if result["impl"] == "right" else "wrong"
    yield "" if result["deviation"] is None else f"{result['deviation']:.0e}"
    yield result["wrong"]


def _use_row(name: str, result: dict[str, Any]) -> Iterator[str]:
    yield from (result["package"], name)
    for wrapper in ("cpu", "sim", "reference"):
        yield result[wrapper].replace("|", "\\|")


#: The folder of the results of a table -> a function that yields the cells of a row.
_ROWS: Mapping[str, Callable[[str, dict[str, Any]], Iterator[str]]] = {
    "consumers": _consumer_row,
    "consumers/uses": _use_row,
    "models": _model_row,
}


def _format_losses(losses: Sequence[float]) -> str:
    first, last = losses
    return f"{first:.7g} … {last:.7g}"


def _format_difference(difference: float) -> str:
    return "0" if difference == 0 else f"{difference:.0e}"


def _format_row(cells: Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"
