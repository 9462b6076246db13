"""Check the table: ``python -m impl_tests.long_checks.perturbations [CLAUSE ...]``."""

import argparse
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from impl_tests.long_checks.perturbations import DEVICES, TABLE, forks, load, replacement
from impl_tests.long_checks.perturbations.collected import CollectedTests, call_with_tests
from impl_tests.long_checks.perturbations.kinds import KINDS, undo
from spec_tests import simulator
from spec_tests.machine import clauses

#: In place of a perturbation: none. With it the tests of the clauses must pass.
_UNCHANGED = f"{DEVICES} unchanged"
#: The beginnings of the lines that a process prints before and after the tests of a clause.
_BEGIN, _PASSED = "tests of clause ", "passed: tests of clause "


def main() -> int:
    """Run the tests of the clauses of each perturbation. Return 1 if those of a clause pass.

    The tests of clauses that are named must pass without the perturbation.
    """
    parser = argparse.ArgumentParser(
        prog="python -m impl_tests.long_checks.perturbations", description=main.__doc__
    )
    parser.add_argument("clauses", nargs="*", help="clauses, or chapters, to try (default: all)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--table", type=Path, default=TABLE, help="default: %(default)s")
    options = parser.parse_args()
    # Refuse an unknown name before the tests are collected.
    selected = _select(options.clauses)
    check_names(load(options.table))
    # Imports before the forks save each process a second.
    for name in ("torch.fx.experimental.symbolic_shapes", "numpy", replacement.TARGET):
        importlib.import_module(name)
    found: list[int] = []
    call_with_tests(
        lambda tests: found.append(_check(tests, selected, options)),
        f"--target={__package__}.target",
        "--hypothesis-profile=perturbations",
        *(f"spec_tests/{name}" for name in clauses.CHAPTERS),
    )
    return max(found, default=2)


def _select(names: Sequence[str]) -> set[str]:
    """Return the clauses that names stand for; all without names."""
    known = clauses.load()
    for name in names:
        if not any(clause.is_named_by(name) for clause in known.values()):
            raise SystemExit(f"no clause is called {name}")
    return {n for n, c in known.items() if not names or any(map(c.is_named_by, names))}


def check_names(perturbations: Iterable[str]) -> None:
    """End the program if the function or the kind of a perturbation does not exist.

    The error of such a perturbation would count as a failed test.
    """
    for perturbation in perturbations:
        function, kind = perturbation.split()
        kinds = simulator.FAULTS if function == DEVICES else KINDS
        if kind.partition(":")[0] not in kinds:
            raise SystemExit(f"{perturbation}: no kind has this name: {', '.join(kinds)}")
        if function != DEVICES:
            try:
                replacement.signature_of(function)
            except (AttributeError, ImportError) as error:
                raise SystemExit(f"{perturbation}: no function has this name") from error


def _check(tests: CollectedTests, selected: set[str], options: argparse.Namespace) -> int:
    table = {p: [n for n in names if n in selected] for p, names in load(options.table).items()}
    tried = {name for names in table.values() for name in names}
    without = sorted(selected - tried)
    for name in without:
        print(f"{name} has no perturbation")
    perturbations = sum(map(bool, table.values()))
    if options.clauses:
        table[_UNCHANGED] = sorted(tried)
    calls = {p: partial(_try, tests, p, names) for p, names in table.items() if names}
    problems = len(without)
    ended = forks.run(calls, processes=options.processes)
    for count, (perturbation, text) in enumerate(ended, 1):
        failed = _read_failed(text)
        if perturbation == _UNCHANGED:
            wrong = sorted(failed)
            verdict = f"the tests of {', '.join(wrong)} fail" if wrong else "passed"
        else:
            wrong = sorted(set(table[perturbation]) - failed)
            verdict = f"SURVIVED {', '.join(wrong)}" if wrong else "caught"
        problems += len(wrong)
        title = "no perturbation" if perturbation == _UNCHANGED else perturbation
        print(f"[{count}/{len(calls)}] {title}: {verdict}", flush=True)
    counts = (len(selected), "clause"), (perturbations, "perturbation"), (problems, "problem")
    print(", ".join(clauses.format_count(*each) for each in counts))
    return int(problems > 0)


def _try(tests: CollectedTests, perturbation: str, names: Iterable[str]) -> None:
    """Run the tests of each clause with a perturbation, until one fails it. Print the clauses."""
    os.environ[replacement.PERTURBATION] = perturbation
    function, kind = perturbation.split()
    with ExitStack() as stack:
        if function == DEVICES and perturbation != _UNCHANGED:
            tests.find_capabilities()
            stack.enter_context(simulator.fault(kind))
        for name in names:
            print(f"\n{_BEGIN}{name}", flush=True)
            for _test, failed in tests.run(tests.of_clause(name)):
                undo()
                if name in failed:
                    break
            else:
                print(f"\n{_PASSED}{name}", flush=True)


def _read_failed(text: str) -> set[str]:
    """Return the clauses with a test that failed, hung or crashed."""
    lines = text.splitlines()
    passed = {line.removeprefix(_PASSED) for line in lines if line.startswith(_PASSED)}
    return {line.removeprefix(_BEGIN) for line in lines if line.startswith(_BEGIN)} - passed


if __name__ == "__main__":
    sys.exit(main())
