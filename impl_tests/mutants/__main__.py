"""Try mutants and print the survivors: ``python -m impl_tests.mutants [NAME ...]``."""

import argparse
import os
import sys

from impl_tests.mutants import Mutant, load, trial


def main() -> int:
    """Try the mutants named, or all; return 1 if one survived."""
    parser = argparse.ArgumentParser(prog="python -m impl_tests.mutants", description=main.__doc__)
    parser.add_argument("names", nargs="*", help="mutants to try (default: all)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--reference", help="of the suite; none: by laws and oracles alone")
    parser.add_argument("--log", action="store_true", help="print what pytest said of survivors")
    options = parser.parse_args()
    mutants = _chosen(options.names)
    rest = [f"--reference={options.reference}"] if options.reference else []
    tests = trial.tests_by_clause(name for each in mutants for name in each.breaks)
    trials = trial.run(mutants, tests, processes=options.processes, options=rest)
    survivors = 0
    for count, each in enumerate(trials, 1):
        survivors += bool(each.survived)
        verdict = f"SURVIVED {', '.join(each.survived)}" if each.survived else "caught"
        print(f"[{count}/{len(mutants)}] {each.mutant.name}: {verdict} ({each.seconds:.0f} s)")
        if each.survived and options.log:
            print(each.log)
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
