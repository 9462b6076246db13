"""What changed in torch.nn.parallel: the verdicts of its releases, in order.

``python -m reports.others.history`` writes ``CHANGES.md`` beside this file, and for each clause
about the Python layer the first release that passes it to ``spec_tests/since.toml``.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from reports.publishing.publish import REPORTS
from spec_tests.failure import SUITE
from spec_tests.machine import clauses
from spec_tests.reporting.runs import REFERENCE, Run, load

HERE = Path(__file__).parent
PAGE = HERE / "CHANGES.md"
SINCE = SUITE / "since.toml"
#: Clauses that the map of CUDA's names disturbs: texts with the device type or with an operator of
#: PyTorch, and a function that tests replace. Older releases have no verdict for them. All other
#: verdicts of the unpacked files of 2.13.0 are those of the installed release.
DISTURBED = (
    "data_parallel.check-balance",
    "data_parallel.get-available-device-type",
    "data_parallel.imbalance",
    "functions.get-stream",
    "replicate.refused.lazy",
)
_HEAD = """\
# What changed in torch.nn.parallel

Up to 2.10.0 only the Python code of these releases was run: it runs
[with PyTorch 2.13.0](README.md#older-releases) and calls its functions in C++. A clause that a
release *gained* was violated, or named a missing function, in the release before. If the run of a
release left a clause out, its flip may belong to a release between the two that are named.

comm of 1.0.0 and 1.4.0 takes devices as ordinals only, so most tests of comm fail on them.
`is_namedtuple` of 1.13.1 and 2.0.1 fails because it warns that it is deprecated.

`python -m reports.others.history` generates this page. `parallel-conformance clauses` prints the
first release that passes a clause.

## Changes that public threads describe

A verdict flips between two releases as each thread says.
"""


class Fix(NamedTuple):
    """A public change of torch.nn.parallel, and a clause whose verdict it flipped.

    Args:
        number: The number of the pull request.
        before: The last release without the change.
        clause: The id of the clause.
        change: The change.
    """

    number: int
    before: str
    clause: str
    change: str


def releases(folder: Path = REPORTS) -> dict[str, Mapping[str, bool]]:
    """Return, for each release in order, whether it passes each clause that was run."""
    found: dict[str, Mapping[str, bool]] = {}
    for run in load(folder):
        name, _, version = str(run.about["target"]).partition(" ")
        if name == REFERENCE and run.hardware == "sim":
            found[version or run.release] = _passed(run, old=bool(version))
    return dict(sorted(found.items(), key=lambda item: [*map(int, item[0].split("."))]))


def _passed(run: Run, *, old: bool) -> dict[str, bool]:
    # A clause that its failed tests do not decide does not pass, either.
    known = clauses.load()
    return {
        name: each.verdict == "pass"
        for name, each in run.evidence.items()
        if name in known
        and known[name].is_about_target
        and (each.verdict != "not-run" or each.is_undecided)
        and not (old and name in DISTURBED)
    }


def flips(history: Mapping[str, Mapping[str, bool]]) -> Iterator[tuple[str, str, str, bool]]:
    """Yield each clause whose verdict differs in two successive releases that decided it.

    A flip is the id, the two releases, and whether the later one passes.
    """
    for name in clauses.load():
        decided = [(release, each[name]) for release, each in history.items() if name in each]
        for (before, passed), (after, passes) in pairwise(decided):
            if passed != passes:
                yield name, before, after, passes


def since(history: Mapping[str, Mapping[str, bool]]) -> dict[str, str]:
    """Return the first release that passes a clause, for clauses about the Python layer.

    A clause of comm that all releases pass is about the functions in C++, which are today's.
    """
    changed = {name for name, *_ in flips(history)}
    found = {}
    for name, clause in clauses.load().items():
        passing = [release for release, each in history.items() if each.get(name)]
        decided = [release for release, each in history.items() if name in each]
        is_python = clause.chapter != "comm" or name in changed
        if passing and is_python and decided[0] == next(iter(history)):
            found[name] = passing[0]
    return found


def fixes() -> list[Fix]:
    """Return the changes that ``fixes.toml`` lists."""
    text = (HERE / "fixes.toml").read_text(encoding="utf-8")
    return [Fix(*row) for row in tomllib.loads(text)["fixes"]]


def render(history: Mapping[str, Mapping[str, bool]]) -> str:
    """Return the text of the page.

    Raises:
        ValueError: A verdict does not flip where a change of ``fixes.toml`` says.
    """
    found = list(flips(history))
    rows = [_fix_row(fix, found) for fix in fixes()]
    lines = [_HEAD, "| change | thread | clause | release |", "|---|---|---|---|", *rows]
    order = [*history]
    found.sort(key=lambda flip: (order.index(flip[2]), order.index(flip[1])))
    for (before, release), group in groupby(found, lambda flip: flip[1:3]):
        members = list(group)
        lines += [f"\n## From {before} to {release}"]
        lines += _format_flips("Gained", [flip[0] for flip in members if flip[3]])
        lines += _format_flips("Lost", [flip[0] for flip in members if not flip[3]])
    return "\n".join(lines) + "\n"


def _format_flips(title: str, names: Sequence[str]) -> Iterator[str]:
    if names:
        yield f"\n{title} ({len(names)}):\n"
        for _, members in _by_chapter(names):
            yield f"* {', '.join(f'`{name}`' for name in members)}"


def _by_chapter(names: Sequence[str]) -> Iterator[tuple[str, Iterator[str]]]:
    return groupby(names, lambda name: name.partition(".")[0])


def _fix_row(fix: Fix, found: Sequence[tuple[str, str, str, bool]]) -> str:
    after = [flip[2] for flip in found if flip[:2] == (fix.clause, fix.before)]
    if not after:
        raise ValueError(f"{fix.clause} has the same verdict before and after {fix.before}")
    thread = f"[{fix.number}](https://github.com/pytorch/pytorch/pull/{fix.number})"
    return f"| {fix.change} | {thread} | `{fix.clause}` | {fix.before} to {after[0]} |"


def _format_since(found: Mapping[str, str]) -> str:
    lines = ["# The first release of torch.nn.parallel that passes a clause. See reports/others."]
    for release in dict.fromkeys(found.values()):
        names = [name for name, first in found.items() if first == release]
        rows = [", ".join(f'"{name}"' for name in members) for _, members in _by_chapter(names)]
        lines += ["", f'"{release}" = [', *(f"    {row}," for row in rows), "]"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page and the file."""
    history = releases()
    PAGE.write_text(render(history), encoding="utf-8")
    SINCE.write_text(_format_since(since(history)), encoding="utf-8")


if __name__ == "__main__":
    main()
