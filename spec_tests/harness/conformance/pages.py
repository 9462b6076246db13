"""The generated pages: SPECIFICATION.md and DIVERGENCES.md.

``python -m spec_tests.harness.conformance.pages`` prints the stale ones and exits with 1 if there
are any; ``--write`` writes them.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from spec_tests.harness.conformance import clauses, register

__all__ = ["PAGES", "stale"]

ROOT = Path(__file__).resolve().parents[3]
REGISTER = register.FOLDER / "torch.nn.parallel.toml"
_LEGEND = """\
# Where impl differs from torch.nn.parallel

Everywhere else `impl` does what torch.nn.parallel does, messages included. An id names the part
that differs, and stays with its divergence for good: **CO** comm, **FN** functions, **SG** scatter
and gather of nested values, **RE** replicate, **PA** parallel_apply, **DP** DataParallel and
data_parallel.

*fix*: torch.nn.parallel is wrong. *extends*: it refuses what `impl` serves. *defined*: what it
does is undefined. A test shows each side. The numbers are public threads, of pytorch/pytorch
unless they say otherwise.

Generated from `spec_tests/registers/torch.nn.parallel.toml` by
`python -m spec_tests.harness.conformance.pages --write`.
"""


def divergences() -> str:
    """Return the text of DIVERGENCES.md: a row for each divergence."""
    lines = [
        _LEGEND,
        "| id | about | kind | torch.nn.parallel | impl | threads |",
        "|---|---|---|---|---|---|",
    ]
    titles = register.titles(REGISTER)
    lines += [_row(name, titles, each) for name, each in _by_id(register.load(REGISTER)).items()]
    return "\n".join(lines) + "\n"


def _by_id(records: Iterable[register.Divergence]) -> dict[str, list[register.Divergence]]:
    found: dict[str, list[register.Divergence]] = {}
    for each in sorted(records, key=lambda record: _sorted_by(record.id)):
        found.setdefault(each.id, []).append(each)
    return found


def _sorted_by(name: str) -> tuple[str, int]:
    part, _, number = name.partition("-")
    return part, int(number)


def _row(name: str, titles: Mapping[str, str], records: list[register.Divergence]) -> str:
    cells = (
        name,
        titles[name],
        _several(each.kind for each in records),
        _several(each.observed for each in records),
        _several(each.specified for each in records),
        ", ".join(dict.fromkeys(_link(link) for each in records for link in each.threads))
        or "none",
    )
    return "| " + " | ".join(cells) + " |"


def _several(texts: Iterable[str]) -> str:
    return "<br>".join(dict.fromkeys(text.replace("|", "\\|") for text in texts))


def _link(thread: str) -> str:
    owner, repository, _, number = thread.rstrip("/").split("/")[-4:]
    return f"[{number if owner == 'pytorch' else f'{owner}/{repository} {number}'}]({thread})"


def specification() -> str:
    """Return the text of SPECIFICATION.md: a row for each clause."""
    return clauses.as_markdown(clauses.load())


#: Every generated page, and the function that returns its text.
PAGES: Mapping[Path, Callable[[], str]] = {
    ROOT / "DIVERGENCES.md": divergences,
    ROOT / "spec_tests" / "SPECIFICATION.md": specification,
}


def stale() -> dict[Path, str]:
    """Return the stale pages with their current text."""
    texts = {path: page() for path, page in PAGES.items()}
    return {path: text for path, text in texts.items() if _read(path) != text}


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def main() -> int:
    """Print the names of stale pages, or write the pages."""
    parser = argparse.ArgumentParser(prog="python -m spec_tests.harness.conformance.pages")
    parser.description = main.__doc__
    parser.add_argument("--write", action="store_true", help="write them")
    write = parser.parse_args().write
    found = stale()
    for path, text in found.items():
        print(f"{path.relative_to(ROOT)}: {'written' if write else 'not current'}")
        if write:
            path.write_text(text, encoding="utf-8")
    return 0 if write else int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
