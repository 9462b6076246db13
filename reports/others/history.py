"""What changed in torch.nn.parallel: the verdicts of its releases, in order.

``python -m reports build`` writes ``CHANGES.md`` beside this file, below the head of its table,
and to ``spec_tests/since.toml`` the first release that passes each clause about the Python layer.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path

from reports.publishing.publish import REPORTS
from spec_tests.failure import SUITE
from spec_tests.machine import clauses
from spec_tests.machine.target import REFERENCE
from spec_tests.reporting.runs import load

HERE = Path(__file__).parent
PAGE = HERE / "CHANGES.md"
#: For each release: whether it passes each clause that was run.
History = Mapping[str, Mapping[str, bool]]
#: A clause, two successive releases with different verdicts, and whether the later one passes.
Flip = tuple[str, str, str, bool]
#: Clauses that the map of CUDA's names disturbs, by texts with the device type or with an operator
#: of PyTorch, and by a function that tests replace. Older releases have no verdict for them.
DISTURBED = (
    *("data_parallel.check-balance", "data_parallel.imbalance", "functions.get-stream"),
    *("data_parallel.get-available-device-type", "replicate.refused.lazy"),
)


def read_releases() -> History:
    """Return the verdicts of the published releases, the oldest first."""
    about_target = {name for name, each in clauses.load().items() if each.is_about_target}
    found = {}
    for run in load(REPORTS):
        name, _, version = str(run.about["target"]).partition(" ")
        if name == REFERENCE and run.hardware == "sim":
            # A clause that its failed tests do not decide does not pass, either.
            found[version or run.release] = {
                clause: each.verdict == "pass"
                for clause, each in run.evidence.items()
                if clause in about_target.difference(DISTURBED if version else ())
                and (each.verdict != "not-run" or each.is_undecided)
            }
    return dict(sorted(found.items(), key=lambda item: [*map(int, item[0].split("."))]))


def flips(history: History) -> Iterator[Flip]:
    """Yield each flip: a clause whose verdict differs in two successive releases with one."""
    for name in clauses.load():
        decided = [(release, each[name]) for release, each in history.items() if name in each]
        for (before, passed), (after, passes) in pairwise(decided):
            if passed != passes:
                yield name, before, after, passes


def since(history: History) -> dict[str, str]:
    """Return the first release that passes a clause, for clauses about the Python layer.

    A clause of comm that all releases pass is about the functions in C++, which are today's.
    """
    changed = {name for name, *_ in flips(history)}
    found = {}
    for name, clause in clauses.load().items():
        passing = [release for release, each in history.items() if each.get(name)]
        is_python = clause.chapter != "comm" or name in changed
        if passing and is_python and name in next(iter(history.values())):
            found[name] = passing[0]
    return found


def format_page(history: History) -> str:
    """Return the text of the page.

    Raises:
        ValueError: A verdict does not flip where a change of ``fixes.toml`` says.
    """
    order = [*history].index
    found = sorted(flips(history), key=lambda flip: (order(flip[2]), order(flip[1])))
    lines = [*_format_fixes(found)]
    for (before, release), group in groupby(found, lambda flip: flip[1:3]):
        lines += [f"\n## From {before} to {release}"]
        members = list(group)
        for title, passes in (("Gained", True), ("Lost", False)):
            if names := [name for name, *_, gained in members if gained == passes]:
                lines += [f"\n{title} ({len(names)}):\n"]
                lines += [f"* `{'`, `'.join(row)}`" for row in _by_chapter(names)]
    head, rule, _ = PAGE.read_text(encoding="utf-8").partition("|---|---|---|---|\n")
    return head + rule + "\n".join(lines) + "\n"


def _format_fixes(found: Sequence[Flip]) -> Iterator[str]:
    fixes = tomllib.loads((HERE / "fixes.toml").read_text(encoding="utf-8"))["fixes"]
    for number, before, clause, change in fixes:
        after = [release for name, last, release, _ in found if (name, last) == (clause, before)]
        if not after:
            raise ValueError(f"{clause} has the same verdict before and after {before}")
        thread = f"[{number}](https://github.com/pytorch/pytorch/pull/{number})"
        yield f"| {change} | {thread} | `{clause}` | {before} to {after[0]} |"


def _by_chapter(names: Sequence[str]) -> Iterator[list[str]]:
    return (list(row) for _, row in groupby(names, lambda name: name.partition(".")[0]))


def format_since(found: Mapping[str, str]) -> str:
    """Return the text of ``since.toml``."""
    lines = ["# The first release of torch.nn.parallel that passes a clause. See reports/others."]
    for release in dict.fromkeys(found.values()):
        rows = _by_chapter([name for name, first in found.items() if first == release])
        lines += ["", f'"{release}" = [', *(f"    {json.dumps(row)[1:-1]}," for row in rows), "]"]
    return "\n".join(lines) + "\n"


def render() -> dict[Path, str]:
    """Return the text of each file."""
    history = read_releases()
    return {PAGE: format_page(history), SUITE / "since.toml": format_since(since(history))}
