"""Try mutants and print the survivors: ``python -m spec_tests.meta_tests.mutants [NAME ...]``."""

import argparse
import os
import sys

from spec_tests.meta_tests.mutants import Mutant, load, trial
from spec_tests.meta_tests.mutants.survival import jobs_of, survived_clauses


def main() -> int:
    """Try the mutants named, or all; return 1 if one survived."""
    parser = argparse.ArgumentParser(
        prog="python -m spec_tests.meta_tests.mutants", description=main.__doc__
    )
    parser.add_argument("names", nargs="*", help="mutants to try (default: all)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--log", action="store_true", help="print what pytest said of survivors")
    options = parser.parse_args()
    jobs = jobs_of(_chosen(options.names), trial.tests_by_clause())
    survivors = 0
    for count, each in enumerate(trial.run(jobs, processes=options.processes), 1):
        survived = survived_clauses(each)
        survivors += bool(survived)
        verdict = f"SURVIVED {', '.join(survived)}" if survived else "caught"
        print(f"[{count}/{len(jobs)}] {each.job.target.name}: {verdict} ({each.seconds:.0f} s)")
        if survived and options.log:
            print(each.log)
        sys.stdout.flush()
    print(f"{len(jobs)} mutants, {len(jobs) - survivors} caught, {survivors} survived")
    return int(survivors > 0)


def _chosen(names: list[str]) -> list[Mutant]:
    mutants = load()
    unknown = [name for name in names if name not in mutants]
    if unknown:
        raise SystemExit(f"no mutant is called {unknown[0]}")
    return [mutants[name] for name in names] if names else list(mutants.values())


if __name__ == "__main__":
    sys.exit(main())
