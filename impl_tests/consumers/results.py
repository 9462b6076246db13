"""The published results of the programs: ``results.json``."""

import ast
from importlib.metadata import version
from typing import TypedDict

from impl_tests.published import read_results, write_results

from .record import Record
from .running import HERE, PROGRAMS, run

__all__ = ["Result", "load_results", "publish", "summarize"]

_FILE = HERE / "results.json"


class Result(TypedDict):
    """The results of a program.

    Attributes:
        package: The package and its version.
        description: The first docstring line of the program, without the package's name.
        reference: The first and the last loss with torch.nn.parallel.
        impl: The first and the last loss with impl.
        largest_difference: The largest difference between two corresponding losses or weights.
    """

    package: str
    description: str
    reference: list[float]
    impl: list[float]
    largest_difference: float


def load_results() -> dict[str, Result]:
    """Return the published results, keyed by program."""
    return read_results(_FILE)


def summarize(program: str, reference: Record, ours: Record) -> Result:
    """Return the results of a program, from its runs with the reference and with impl."""
    name = PROGRAMS[program]
    return Result(
        package=f"{name} {version(name)}",
        description=_describe(program),
        reference=_first_and_last(reference),
        impl=_first_and_last(ours),
        largest_difference=_largest_difference(reference, ours),
    )


def publish() -> None:
    """Run all programs and write ``results.json``."""
    results = {
        program: summarize(program, run(program, "reference"), run(program, "impl"))
        for program in PROGRAMS
    }
    write_results(_FILE, results)


def _first_and_last(record: Record) -> list[float]:
    return [record["losses"][0], record["losses"][-1]]


def _describe(program: str) -> str:
    """Return the first docstring line of a program, without the leading "package: "."""
    tree = ast.parse((HERE / "programs" / f"{program}.py").read_text())
    first = (ast.get_docstring(tree) or "").splitlines()[0]
    return first.partition(": ")[2].rstrip(".").replace("``", "`")


def _largest_difference(left: Record, right: Record) -> float:
    pairs = zip(_flatten(left), _flatten(right), strict=True)
    # Equal numbers are left out because inf - inf is nan.
    return max((abs(a - b) for a, b in pairs if a != b), default=0.0)


def _flatten(record: Record) -> list[float]:
    return [*record["losses"], *(x for weight in record["weights"].values() for x in weight)]
