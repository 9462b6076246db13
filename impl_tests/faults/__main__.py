"""Inject faults into calls of the public functions; return 1 after a bad verdict."""

import argparse
import importlib
import os
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from impl_tests.wrong import Perturbation, state

from .calls import prepare
from .cases import CASES
from .kinds import KINDS
from .trial import BAD, VERDICTS, draw_trials, report, run_trials


def main() -> int:
    """Run trials. Return 1 if a verdict is bad."""
    options = _parser().parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.perturbation:
            _perturb(options.perturbation, Path(folder))
        return _run(options)


def _perturb(line: str, folder: Path) -> None:
    """Change the behaviour of a public function of impl.

    Args:
        line: The function, the kind and the guard of a perturbation.
        folder: A folder for the file from which processes read the perturbation.
    """
    os.environ[state.FUNCTIONS] = Perturbation.parse(line).function
    os.environ[state.FILE] = str(folder / "perturbation")
    state.set_active(line)
    importlib.import_module("impl_tests.wrong.target")


def _run(options: argparse.Namespace) -> int:
    seed = random.randrange(10**9) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    prepare()
    trials = draw_trials(options.kinds, options.cases, range(seed, seed + options.count))
    results = run_trials(trials, processes=options.processes)
    return report(results, VERDICTS, BAD, exitfirst=options.exitfirst)


def _names_in(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a function that splits a text at its commas into ``known`` names."""

    def split(text: str) -> list[str]:
        names = text.split(",")
        if unknown := set(names) - set(known):
            raise argparse.ArgumentTypeError(f"unknown name: {min(unknown)}")
        return names

    return split


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m impl_tests.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="trials to run (default: 300)")
    parser.add_argument("--seed", type=int, help="the seed of the first trial; the others follow")
    known_names: dict[str, list[str]] = {"kinds": [*KINDS], "cases": [*CASES]}
    for name, known in known_names.items():
        parser.add_argument(
            f"--{name}",
            type=_names_in(known),
            default=known,
            help=f"with commas, some of: {', '.join(known)} (default: all)",
        )
    parser.add_argument("--processes", type=int, default=2, help="at a time (default: 2)")
    parser.add_argument("-x", "--exitfirst", action="store_true", help="end at a bad verdict")
    parser.add_argument(
        "--perturbation", metavar="LINE", help="make impl wrong: FUNCTION, KIND and GUARD"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
