"""Small automatic changes to impl, one at a time: how many does the suite notice?

``python -m spec_tests.meta_tests.mutation`` applies cosmic-ray's operators to every file of impl
and runs the tests of the parts that use the file, nearest first, until one fails. The tests see
impl as any target; impl's own meta tests do not take part.
"""

import argparse
import ast
import os
import random
import shutil
import sys
import tomllib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray import plugins
from cosmic_ray.mutating import mutate_code

from spec_tests.meta_tests.mutants import IMPL, trial

#: Of cosmic-ray's operators those that change what a line does without being a variant of another.
OPERATORS = (
    "AddNot",
    "ExceptionReplacer",
    "NumberReplacer",
    "RemoveDecorator",
    "ReplaceAndWithOr",
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_FloorDiv_Mul",
    "ReplaceBinaryOperator_Mul_Div",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBreakWithContinue",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
    "ZeroIterationForLoop",
)
#: Changes that alter nothing a caller can see, each with the reason.
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
#: The chapters of the suite; a file's tests are those of the chapters whose part uses it.
CHAPTERS = (
    "comm",
    "functions",
    "scatter_gather",
    "replicate",
    "parallel_apply",
    "data_parallel",
)


@dataclass(frozen=True)
class Change:
    """impl with one small change.

    Args:
        operator: The operator of cosmic-ray.
        file: The file of impl.
        before: The line as it was.
        after: The line as it is.
        text: The file as it is.
    """

    operator: str
    file: str
    before: str
    after: str
    text: str

    @property
    def name(self) -> str:
        """What was changed where."""
        return f"{self.file}: {self.before.strip()} -> {self.after.strip()}"

    @property
    def package(self) -> str:
        """A name for the changed package."""
        return f"change_{zlib.crc32(self.name.encode()):08x}"

    def write(self, folder: Path) -> None:
        """Write the changed package into ``folder``."""
        home = folder / self.package
        shutil.copytree(IMPL, home, ignore=shutil.ignore_patterns("__pycache__"))
        (home / self.file).write_text(self.text, encoding="utf-8")


def changes() -> Iterator[Change]:
    """Every change to every file, each once, docstrings and type hints left alone."""
    seen: set[str] = set()
    for path in sorted(IMPL.glob("*.py")):
        for change in _changes_of(path):
            if change.name not in seen:
                seen.add(change.name)
                yield change


def _changes_of(path: Path) -> Iterator[Change]:
    code = path.read_text(encoding="utf-8")
    for operator in OPERATORS:
        kind = plugins.get_operator(f"core/{operator}")
        occurrence = 0
        while (text := mutate_code(code, kind(), occurrence)) is not None:
            occurrence += 1
            place = _first_changed_line(code, text)
            if place is not None:
                yield Change(operator, path.name, *place, text)


def _first_changed_line(code: str, text: str) -> tuple[str, str] | None:
    # A removed decorator shifts what follows: the lines need not be as many.
    pairs = zip(code.splitlines(), text.splitlines(), strict=False)
    return next(((before, after) for before, after in pairs if before != after), None)


def chapters_by_file() -> dict[str, list[str]]:
    """The chapters whose part uses a file of impl, those nearest to it first."""
    uses = {path.stem: _used(path) for path in IMPL.glob("*.py")}
    distances = {chapter: _distances(chapter, uses) for chapter in CHAPTERS}
    return {
        file: sorted(
            (chapter for chapter in CHAPTERS if file in distances[chapter]),
            key=lambda chapter: distances[chapter][file],
        )
        for file in uses
    }


def _used(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            modules = [node.module] if node.module else [alias.name for alias in node.names]
            names.update(module.split(".")[0] for module in modules)
    return names


def _distances(start: str, uses: dict[str, set[str]]) -> dict[str, int]:
    found, frontier, steps = {start: 0}, {start}, 0
    while frontier:
        steps += 1
        frontier = {name for each in frontier for name in uses.get(each, ())} - found.keys()
        found.update(dict.fromkeys(frontier, steps))
    return found


def jobs(chosen: Sequence[Change]) -> list[trial.Job]:
    """One job a change: its chapters' tests, the nearest first, until one fails."""
    order = chapters_by_file()
    return [trial.Job(each, _tests(order, each), ("-x",), limit=1200) for each in chosen]


def _tests(order: dict[str, list[str]], change: Change) -> tuple[str, ...]:
    chapters = order.get(Path(change.file).stem) or list(CHAPTERS)
    return (*(f"spec_tests/{chapter}" for chapter in chapters), "spec_tests/divergences")


def main() -> int:
    """Try the changes; return 1 if fewer than 90 % of those that matter are noticed."""
    parser = argparse.ArgumentParser(
        prog="python -m spec_tests.meta_tests.mutation", description=main.__doc__
    )
    parser.add_argument(
        "--sample", type=int, metavar="N", help="try N, drawn evenly (default: all)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (default: 0)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    options = parser.parse_args()
    records = tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])
    equivalent = {f"{each['file']}: {each['before']} -> {each['after']}" for each in records}
    found = [change for change in changes() if change.name not in equivalent]
    chosen = found
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(found, options.sample)
    noticed = _try(chosen, options.processes)
    share = noticed / len(chosen)
    print(f"{len(equivalent)} changes alter nothing (equivalent.toml gives the reasons)")
    print(f"{len(chosen)} of {len(found)} others tried, {noticed} noticed: {share:.1%}")
    return int(share < 0.9)


def _try(chosen: Sequence[Change], processes: int) -> int:
    noticed = 0
    for count, each in enumerate(trial.run(jobs(chosen), processes=processes), 1):
        is_noticed = not each.ended or "fail" in each.verdicts.values()
        noticed += is_noticed
        verdict = "noticed" if is_noticed else "SURVIVED"
        print(f"[{count}/{len(chosen)}] {verdict} {each.job.target.name} ({each.seconds:.0f} s)")
        sys.stdout.flush()
    return noticed


if __name__ == "__main__":
    sys.exit(main())
