"""What the runs have shown, as it is published: ``results.json``."""

import ast
import json
from importlib.metadata import version
from typing import TypedDict

from .record import Record
from .running import HERE, PROGRAMS, run

__all__ = ["Result", "result_of", "results", "write"]

_FILE = HERE / "results.json"


class Result(TypedDict):
    """One program's runs.

    Attributes:
        package: The package and its version.
        what: What the program is, in its own words.
        reference: Losses on torch.nn.parallel.
        impl: Losses on impl.
        largest_difference: Between the losses, or the weights, of the two.
    """

    package: str
    what: str
    reference: list[float]
    impl: list[float]
    largest_difference: float


def results() -> dict[str, Result]:
    """The published results, by program."""
    found: dict[str, Result] = json.loads(_FILE.read_text())
    return found


def result_of(program: str, reference: Record, ours: Record) -> Result:
    """Sum up two runs of a program."""
    name = PROGRAMS[program]
    return Result(
        package=f"{name} {version(name)}",
        what=_what(program),
        reference=reference["losses"],
        impl=ours["losses"],
        largest_difference=_largest_difference(reference, ours),
    )


def write() -> None:
    """Run all programs and publish what they show."""
    found = {
        program: result_of(program, run(program, "reference"), run(program, "impl"))
        for program in PROGRAMS
    }
    _FILE.write_text(json.dumps(found, indent=1) + "\n")


def _what(program: str) -> str:
    """What the first line of a program says after the package's name."""
    tree = ast.parse((HERE / "programs" / f"{program}.py").read_text())
    first = (ast.get_docstring(tree) or "").splitlines()[0]
    return first.partition(": ")[2].rstrip(".").replace("``", "`")


def _largest_difference(one: Record, other: Record) -> float:
    pairs = zip(_numbers(one), _numbers(other), strict=True)
    return max((abs(a - b) for a, b in pairs if a != b), default=0.0)  # Two infinities are equal.


def _numbers(record: Record) -> list[float]:
    return [*record["losses"], *(x for row in record["weights"].values() for x in row)]
