"""Check the table: ``python -m impl_tests.long_checks.perturbations [CLAUSE ...]``."""

import argparse
import atexit
import os
import sys
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from impl_tests.long_checks.perturbations import (
    DEVICES,
    PERTURBATION,
    TABLE,
    UNCHANGED,
    load,
    replacement,
)
from impl_tests.long_checks.perturbations.kinds import KINDS
from impl_tests.long_checks.perturbations.pytest_plugin import BEGIN, END, FAILED
from spec_tests import simulator
from spec_tests.machine import clauses
from spec_tests.machine.fork_server import ForkServer

_ROOT = Path(__file__).resolve().parents[3]
#: In place of a perturbation: none. With it the tests of the clauses must pass.
_NONE = f"{DEVICES} {UNCHANGED}"
#: A time limit ends a test that takes longer. With few examples no test does.
_PYTEST = (
    *("pytest", "spec_tests", f"--target={__package__}.target", "--accelerator=sim"),
    *("-p", f"{__package__}.pytest_plugin", "--hypothesis-profile=perturbations"),
    *("-qq", "-s", "--tb=line", "-n=0", "--timeout=90"),
)
#: The server of each thread.
_local = threading.local()


def main() -> int:
    """Run the tests of the clauses of each perturbation. Return 1 if those of a clause pass.

    The tests of clauses that are named must pass without the perturbation.
    """
    parser = argparse.ArgumentParser(
        prog="python -m impl_tests.long_checks.perturbations",
        description=main.__doc__,
        epilog=f"kinds: {', '.join(KINDS)}",
    )
    parser.add_argument("clauses", nargs="*", help="clauses, or chapters, to try (default: all)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--table", type=Path, default=TABLE, help="default: %(default)s")
    options = parser.parse_args()
    selected = _select(options.clauses)
    check_names(load(options.table))
    return check(selected, options)


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


def check(selected: set[str], options: argparse.Namespace) -> int:
    """Try the perturbations of the selected clauses. Return 1 if there is a problem."""
    table = {p: [n for n in names if n in selected] for p, names in load(options.table).items()}
    table = {perturbation: names for perturbation, names in table.items() if names}
    tried = {name for names in table.values() for name in names}
    without = sorted(selected - tried)
    for name in without:
        print(f"{name} has no perturbation")
    perturbations = len(table)
    if options.clauses:
        table[_NONE] = sorted(tried)
    problems = len(without)
    pool = ThreadPoolExecutor(options.processes, initializer=_start_server)
    try:
        found = pool.map(find_failed, table.keys(), table.values())
        for count, (perturbation, failed) in enumerate(zip(table, found, strict=True), 1):
            wrong, verdict = _judge(perturbation, table, failed)
            problems += len(wrong)
            title = "no perturbation" if perturbation == _NONE else perturbation
            print(f"[{count}/{len(table)}] {title}: {verdict}", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)  # After an interrupt, most perturbations wait.
    counts = (len(selected), "clause"), (perturbations, "perturbation"), (problems, "problem")
    print(", ".join(clauses.format_count(*each) for each in counts))
    return int(problems > 0)


def _judge(
    perturbation: str, table: Mapping[str, Collection[str]], failed: set[str]
) -> tuple[list[str], str]:
    """Return the clauses whose tests should have failed or passed, and a text."""
    if perturbation == _NONE:
        wrong = sorted(failed)
        return wrong, f"the tests of {', '.join(wrong)} fail" if wrong else "passed"
    wrong = sorted(set(table[perturbation]) - failed)
    return wrong, f"SURVIVED {', '.join(wrong)}" if wrong else "caught"


def _start_server() -> None:
    """Make a server for this thread."""
    _local.server = ForkServer()
    atexit.register(_local.server.close)


def find_failed(perturbation: str, names: Collection[str]) -> set[str]:
    """Return the clauses with a test that fails, hangs or crashes.

    Raises:
        RuntimeError: The run ended before the first test.
    """
    failed: set[str] = set()
    while left := {*names} - failed:
        env = {**os.environ, "PYTHONPATH": str(_ROOT), PERTURBATION: perturbation}
        command = [*_PYTEST, *(f"--clause={name}" for name in left)]
        done = _local.server.run(*command, cwd=_ROOT, env=env)
        lines = done.stdout.splitlines()
        for line in lines:
            if line.startswith(FAILED):
                failed.update(line.removeprefix(FAILED).split())
        begun = [line.removeprefix(BEGIN).split() for line in lines if line.startswith(BEGIN)]
        if END in lines:
            break
        if not begun:
            raise RuntimeError(f"{perturbation}:\n{done.stdout}{done.stderr}")
        failed.update(begun[-1])  # This test has ended the process.
    return failed.intersection(names)


if __name__ == "__main__":
    sys.exit(main())
