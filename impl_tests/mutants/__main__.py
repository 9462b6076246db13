"""Try mutants and print the survivors: ``python -m impl_tests.mutants [NAME ...]``."""

import argparse
import os
import sys

from impl_tests.mutants import Mutant, load, trial


def main() -> int:
    """Try mutants; return 1 if one survived, that is, if all tests of a clause passed on it."""
    parser = argparse.ArgumentParser(prog="python -m impl_tests.mutants", description=main.__doc__)
    parser.add_argument("names", nargs="*", help="mutants to try (default: all)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument(
        "--reference", help="the suite's --reference; none: judge by laws and oracles alone"
    )
    parser.add_argument("--log", action="store_true", help="print pytest's output on survivors")
    options = parser.parse_args()
    mutants = _chosen(options.names)
    extra = [f"--reference={options.reference}"] if options.reference else []
    tests = trial.collect_tests(clause for mutant in mutants for clause in mutant.breaks)
    trials = trial.run(mutants, tests, processes=options.processes, options=extra)
    survivors = 0
    for count, done in enumerate(trials, 1):
        survivors += bool(done.survived)
        verdict = f"SURVIVED {', '.join(done.survived)}" if done.survived else "caught"
        print(f"[{count}/{len(mutants)}] {done.mutant.name}: {verdict} ({done.seconds:.0f} s)")
        if done.survived and options.log:
            print(done.log)
        sys.stdout.flush()
    print(f"{len(mutants)} mutants, {len(mutants) - survivors} caught, {survivors} survived")
    return int(survivors > 0)


def _chosen(names: list[str]) -> list[Mutant]:
    mutants = load()
    unknown = [name for name in names if name not in mutants]
    if unknown:
        raise SystemExit(f"no mutant is called {unknown[0]}")
    return [mutants[name] for name in names] if names else list(mutants.values())


if __name__ == "__main__":
    sys.exit(main())
