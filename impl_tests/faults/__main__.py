"""Inject faults into calls of the public functions; return 1 after a bad verdict."""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from impl_tests.wrong import Perturbation, state

from .calls import prepare
from .cases import CASES
from .kinds import KINDS
from .trial import BAD, VERDICTS, draw_trials, format_counts, run_trials


def main() -> int:
    """Run trials. Return 1 if a verdict is bad."""
    options = _parser().parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.perturbation:
            options.target = _perturb(options.perturbation, Path(folder))
        return _run(options)


def _perturb(line: str, folder: Path) -> str:
    """Change the behaviour of a public function of impl. Return the name of the changed target.

    Args:
        line: The function, the kind and the guard of a perturbation.
        folder: A folder for the file from which processes read the perturbation.
    """
    os.environ[state.FUNCTIONS] = Perturbation.parse(line).function
    os.environ[state.FILE] = str(folder / "perturbation")
    state.set_active(line)
    return "impl_tests.wrong.target"


def _run(options: argparse.Namespace) -> int:
    seed = random.randrange(10**9) if options.seed is None else options.seed
    target, start, counts = prepare(options.target), time.monotonic(), Counter[tuple[str, str]]()
    is_reference = options.target == "torch.nn.parallel"
    cases = [name for name in options.cases if CASES[name].is_reference or not is_reference]
    trials = draw_trials(options.kinds, cases, range(seed, seed + options.count))
    print(f"{options.target}, seed {seed}", flush=True)
    with suppress(KeyboardInterrupt):  # The table then counts the trials until the interrupt.
        for trial, findings, _ in run_trials(target, trials, processes=options.processes):
            counts.update((finding.kind, finding.verdict) for finding in findings)
            bad = [finding for finding in findings if finding.verdict in BAD]
            for finding in bad:
                print(f"{finding.verdict} ({trial})\n  {finding.detail}", flush=True)
            if bad and options.exitfirst:
                break
    print(format_counts(counts, VERDICTS, BAD))
    bad_count = sum(count for (_, verdict), count in counts.items() if verdict in BAD)
    print(f"{counts.total()} calls, {bad_count} bad, {time.monotonic() - start:.0f} s")
    return int(bad_count > 0)


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
    parser.add_argument("--target", default="impl", help="default: impl")
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
