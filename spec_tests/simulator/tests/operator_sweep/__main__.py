"""Compare the operators of PyTorch's OpInfo database on a simulated device and on the CPU."""

import argparse
import sys
import warnings
from collections import Counter

import torch

from spec_tests import simulator

from . import database, sweep

_SIM_DEVICES = 4


def main(arguments: list[str]) -> int:
    """Run the sweep, print problems and a summary, and return the exit status."""
    options = _parser().parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # other tests use the other cores
    simulator.enable(_SIM_DEVICES)
    counts: Counter[str] = Counter()
    problems = []
    for case in _selected_cases(options):
        for outcome in sweep.run(case, quick=options.quick):
            counts[outcome.verdict] += 1
            if outcome.verdict in ("differs", "unimplemented"):
                text = f"{case.operator} [{case.dtype}] {outcome.verdict}: {outcome.detail}"
                problems.append(text)
                print(text, flush=True)
    print(f"{len(problems)} problems; calls: {dict(counts)}")
    return 1 if problems or not counts["agrees"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="operator_sweep", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two samples, two dtypes")
    parser.add_argument("names", nargs="*", metavar="NAME", help="operators; all by default")
    return parser


def _selected_cases(options: argparse.Namespace) -> list[database.Case]:
    cases = database.find_cases(database.QUICK_DTYPES if options.quick else database.DTYPES)
    return [case for case in cases if case.operator in options.names or not options.names]


sys.exit(main(sys.argv[1:]))
