"""Inject faults into random calls of the public functions; return 1 after a bad outcome."""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from impl_tests.wrong import Perturbation, state

from .calls import prepare
from .kinds import KINDS
from .trial import TIME_LIMIT, TrialResult, run_trials
from .verdicts import BAD, VERDICTS, format_counts


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
    print(f"{options.target}, seed {seed}", flush=True)
    trials = run_trials(
        target,
        options.kinds,
        range(seed, seed + options.count),
        processes=options.processes,
        limit=options.limit,
    )
    with suppress(KeyboardInterrupt):  # The table then counts the trials until the interrupt.
        for trial in trials:
            counts.update((finding.kind, finding.verdict) for finding in trial.findings)
            bad = describe_bad(trial)
            print(*bad, sep="\n", end="\n" * bool(bad), flush=True)
            if bad and options.exitfirst:
                break
    print(format_counts(counts, VERDICTS, BAD))
    bad_count = sum(count for (_, verdict), count in counts.items() if verdict in BAD)
    print(f"{counts.total()} calls, {bad_count} bad, {time.monotonic() - start:.0f} s")
    return int(bad_count > 0)


def describe_bad(trial: TrialResult) -> list[str]:
    """Return a text for each bad verdict of a trial, with the options that repeat the trial."""
    return [
        f"{finding.verdict} (--kinds {trial.kind} --seed {trial.seed} --count 1)\n"
        f"  {trial.log.strip()}\n  {finding.detail}"
        for finding in trial.findings
        if finding.verdict in BAD
    ]


def _split_kinds(text: str) -> list[str]:
    kinds = text.split(",")
    if unknown := set(kinds) - set(KINDS):
        raise argparse.ArgumentTypeError(f"unknown kind of fault: {min(unknown)}")
    return kinds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m impl_tests.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="trials to run (default: 300)")
    parser.add_argument("--seed", type=int, help="the seed of the first trial; the others follow")
    parser.add_argument("--target", default="impl", help="default: impl")
    parser.add_argument(
        "--kinds",
        type=_split_kinds,
        default=list(KINDS),
        help=f"with commas, some of: {', '.join(KINDS)} (default: all)",
    )
    parser.add_argument("--processes", type=int, default=2, help="at a time (default: 2)")
    parser.add_argument("--limit", type=float, default=TIME_LIMIT, help="seconds for each process")
    parser.add_argument("-x", "--exitfirst", action="store_true", help="end at a bad verdict")
    parser.add_argument(
        "--perturbation", metavar="LINE", help="make impl wrong: FUNCTION, KIND and GUARD"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
