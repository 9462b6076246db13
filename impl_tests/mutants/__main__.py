"""Run the suite on mutants: ``python -m impl_tests.mutants [NAME ...]``."""

import argparse
import os
import sys

from impl_tests.mutants import Mutant, load, trial


def main() -> int:
    """Run the suite on mutants. Return 1 if all tests of a clause that a mutant breaks pass."""
    parser = argparse.ArgumentParser(prog="python -m impl_tests.mutants", description=main.__doc__)
    parser.add_argument("names", nargs="*", help="mutants to try (default: all)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument(
        "--reference",
        help="the suite's --reference; none: run only tests that do not compare with a reference",
    )
    parser.add_argument("--log", action="store_true", help="print pytest's output on survivors")
    options = parser.parse_args()
    mutants = _select_mutants(options.names)
    extra = [f"--reference={options.reference}"] if options.reference else []
    tests = trial.collect_tests(clause for mutant in mutants for clause in mutant.breaks)
    trials = trial.run(mutants, tests, processes=options.processes, options=extra)
    survivors = 0
    for count, result in enumerate(trials, 1):
        survived = result.survived_clauses
        survivors += bool(survived)
        verdict = f"SURVIVED {', '.join(survived)}" if survived else "caught"
        print(f"[{count}/{len(mutants)}] {result.mutant.name}: {verdict} ({result.seconds:.0f} s)")
        if survived and options.log:
            print(result.log)
        sys.stdout.flush()
    print(f"{len(mutants)} mutants, {len(mutants) - survivors} caught, {survivors} survived")
    return int(survivors > 0)


def _select_mutants(names: list[str]) -> list[Mutant]:
    mutants = load()
    unknown = [name for name in names if name not in mutants]
    if unknown:
        raise SystemExit(f"no mutant is called {unknown[0]}")
    return [mutants[name] for name in names] if names else list(mutants.values())


if __name__ == "__main__":
    sys.exit(main())
