"""Published results of ``tox -e consumers``, and the tables of the page that shows them."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from spec_tests.reporting import documents

_HERE = Path(__file__).resolve().parents[1]
PAGE = _HERE.parent / "docs" / "from_data_parallel" / "programs.md"
#: The verdicts of the sweep, the worst one first.
VERDICTS = ("wrong", "refused", "random", "mix", "listed", "equal")
#: The beginning of the names of models with a head in the sweep.
_HEAD = "causal_lm/"
#: For each library of the sweep: its wrappers.
_LIBRARIES = {"impl": ("cpu", "sim"), "torch.nn.parallel": ("reference",)}


def read_results(path: Path) -> dict[str, Any]:
    """Return the results in a file, by name."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(found, list):  # As `group_results` returns them.
        found = dict(sorted((name, each) for each in found for name in each.pop("names")))
    results: dict[str, Any] = found
    return results


def group_results(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each result once, with the names that have it."""
    names: dict[str, list[str]] = {}
    for name, each in sorted(results.items()):
        names.setdefault(json.dumps(each), []).append(name)
    return [{**json.loads(text), "names": each} for text, each in names.items()]


def write_results(path: Path, results: Mapping[str, Any] | list[Any]) -> None:
    """Replace the results in a file, one line for each, and the tables of the page."""
    path.write_text(f"{documents.dump_entries(results)}\n", encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def with_tables(page: str) -> str:
    """Return the text of the page with the rows of the published results in its tables."""
    for header, (folder, make_rows) in _TABLES.items():
        before, found, after = page.partition(header)
        names, separator, *_ = (found + after).splitlines()
        rest = after[after.index("\n\n") :]
        rows = [f"| {' | '.join(cells)} |" for cells in make_rows(_results(folder))]
        page = before + "\n".join([names, separator, *rows]) + rest
    return page


def count_verdicts() -> dict[str, Counter[str]]:
    """Return the numbers of the verdicts of each library in the sweep, without those of heads."""
    return {
        library: Counter(verdicts.values())
        for library, verdicts in _find_verdicts(_choose(_results("sweep"), heads=False)).items()
    }


def find_verdict(*results: str) -> str:
    """Return the verdict of an architecture, the worst of those of several wrappers."""
    found = {result.partition(":")[0] for result in results}
    if found - {*VERDICTS}:  # An error.
        found.add("refused")
    return next(verdict for verdict in VERDICTS if verdict in found)


def _results(folder: str) -> dict[str, Any]:
    return read_results(_HERE / folder / "results.json")


def _use_rows(results: dict[str, Any]) -> Iterator[list[str]]:
    for use, each in results.items():
        cells = [each[wrapper].replace("|", "\\|") for wrapper in ("cpu", "sim", "reference")]
        yield [each["package"], use, *cells]


def _choose(results: dict[str, Any], *, heads: bool) -> dict[str, Any]:
    return {name: each for name, each in results.items() if name.startswith(_HEAD) is heads}


def _verdict_rows(results: dict[str, Any], *, heads: bool = False) -> Iterator[list[str]]:
    """Yield the architectures of each verdict."""
    for library, verdicts in _find_verdicts(_choose(results, heads=heads)).items():
        for verdict in reversed(VERDICTS):
            names = [name for name, each in verdicts.items() if each == verdict]
            if names:
                yield [library, verdict, str(len(names)), _shorten(names).replace(_HEAD, "")]


def _reason_rows(results: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the architectures that are neither equal nor mix with impl, and the reasons."""
    verdicts = _find_verdicts(results)["impl"]
    for name, verdict in verdicts.items():
        if verdict not in ("equal", "mix"):
            found = max(results[name]["cpu"], results[name]["sim"], key=len)
            yield [_shorten([name]), found.replace("|", "\\|"), _find_reason(name)]


def _unbuilt_rows(results: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the architectures without a result for each reason."""
    reasons = {name: _find_reason(name) for name, each in results.items() if "cpu" not in each}
    for reason in sorted({*reasons.values()}):
        some = [name for name, each in reasons.items() if each == reason]
        yield [reason, str(len(some)), _shorten(some)]


def _find_reason(name: str) -> str:
    """Return the reason of an architecture, or of its type, if it has a head."""
    reasons = read_results(_HERE / "sweep" / "reasons.json")
    reason: str = reasons.get(name) or reasons.get(name.replace(_HEAD, "transformers/"), "")
    return reason


def _find_verdicts(results: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {
        library: {
            name: find_verdict(*(each[wrapper] for wrapper in wrappers))
            for name, each in results.items()
            if "cpu" in each
        }
        for library, wrappers in _LIBRARIES.items()
    }


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(name.removeprefix("transformers/") for name in names)


_Rows = Callable[[dict[str, Any]], Iterator[list[str]]]
#: For each beginning of a table: the folder of its results, and a function that yields its rows.
_TABLES: Mapping[str, tuple[str, _Rows]] = {
    "| package | use |": ("consumers/uses", _use_rows),
    "| library | verdict |": ("sweep", _verdict_rows),
    "| library | verdict of the head |": ("sweep", partial(_verdict_rows, heads=True)),
    "| architecture | result |": ("sweep", _reason_rows),
    "| reason | not built |": ("sweep", _unbuilt_rows),
}
