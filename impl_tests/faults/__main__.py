"""Inject faults into random calls of the public functions; return 1 after a bad outcome."""

import argparse
import random
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from .table import Tally, format_counts
from .target import perturb, prepare
from .trial import KINDS, TIME_LIMIT, TrialResult, run_trials
from .verdicts import BAD, VERDICTS


def main() -> int:
    """Run trials. Return 1 if a verdict is bad."""
    options = _parser().parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.perturbation:
            options.target = perturb(options.perturbation, Path(folder))
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    seed = random.randrange(10**9) if options.seed is None else options.seed
    target, start, tally, count = prepare(options.target), time.monotonic(), Tally(), 0
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
            count += 1
            for finding in trial.findings:
                tally.add(finding.kind, finding.verdict)
            for text in describe_bad(trial):
                print(text, flush=True)
    print(format_counts({options.target: tally.counts}, VERDICTS, BAD))
    seconds, injected = time.monotonic() - start, tally.total([*VERDICTS][1:])
    print(f"{count} trials, {injected} faults, {tally.total(BAD)} bad, {seconds:.0f} s")
    return int(tally.total(BAD) > 0)


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
    parser.add_argument(
        "--perturbation", metavar="LINE", help="make impl wrong: FUNCTION, KIND and GUARD"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
