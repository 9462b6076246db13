"""Check the table of perturbations: ``python -m impl_tests.weekly.perturbations [CLAUSE ...]``."""

import argparse
import importlib
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from impl_tests.helpers import forks
from impl_tests.weekly.perturbations import DEVICES, TABLE, Perturbation, load, replacement
from impl_tests.weekly.perturbations.collected import CollectedTests, call_with_tests
from impl_tests.weekly.perturbations.kinds import undo
from spec_tests import simulator
from spec_tests.harness.conformance import clauses

#: Function -> its recorded calls: the test and the facts of each.
CallLog = dict[str, list[tuple[str, frozenset[str]]]]
#: The number of tests whose calls one process records.
_CHUNK = 150
#: The largest number of clauses that a perturbation may fail.
_MOST = 10
#: The beginning of the clauses whose tests make all kinds of calls, so that nearly each
#: perturbation of a wrapper fails them. They do not show that a perturbation is too gross.
_LIVES = "data_parallel.life."
#: The beginnings of the lines that a process prints before and after the tests of a clause.
_BEGIN, _PASSED = "tests of clause ", "passed: tests of clause "


def main() -> int:
    """Run the suite with each perturbation. Return 1 if one is not noticed, or is too gross.

    Without names, also check that each perturbation fails at most ten clauses. With names this is
    not checked, because it needs all tests.
    """
    parser = argparse.ArgumentParser(
        prog="python -m impl_tests.weekly.perturbations", description=main.__doc__
    )
    parser.add_argument("clauses", nargs="*", help="clauses, or chapters, to try (default: all)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--table", type=Path, default=TABLE, help="default: %(default)s")
    options = parser.parse_args()
    _select(options.clauses)  # Refuse an unknown name before the tests are collected.
    # Imports before the forks save each process a second.
    for name in ("torch.fx.experimental.symbolic_shapes", "numpy", replacement.TARGET):
        importlib.import_module(name)
    found: list[int] = []
    call_with_tests(
        lambda tests: found.append(_check(tests, options)),
        f"--target={__package__}.target",
        "--hypothesis-profile=perturbations",
        *(f"spec_tests/{name}" for name in clauses.CHAPTERS),
    )
    return max(found, default=2)


def _select(names: Sequence[str]) -> list[str]:
    known = clauses.load()
    for name in names:
        if not any(clause.is_named_by(name) for clause in known.values()):
            raise SystemExit(f"no clause is called {name}")
    return [n for n, c in known.items() if not names or any(map(c.is_named_by, names))]


def _check(tests: CollectedTests, options: argparse.Namespace) -> int:
    selected = set(_select(options.clauses))
    named: dict[Perturbation, list[str]] = defaultdict(list)
    for name, perturbation in load(options.table).items():
        if name in selected:
            named[perturbation].append(name)
    used = [test for test, ids in tests.clauses.items() if selected.intersection(ids)]
    log, passed = _record_calls(tests, used, options.processes)
    jobs = (
        forks.Job(p, partial(_try, tests, p, _select_tests(p, tests, log, passed, names)))
        for p, names in named.items()
    )
    problems = 0
    for count, ended in enumerate(forks.run(jobs, processes=options.processes), 1):
        perturbation = ended.job.subject
        failed = _read_failed(ended.log)
        survived = [name for name in named[perturbation] if name not in failed]
        counted = [name for name in failed if not name.startswith(_LIVES)]
        gross = not options.clauses and len(counted) > _MOST
        problems += bool(survived) + gross
        verdict = f"SURVIVED {', '.join(survived)}" if survived else "caught"
        verdict += f", TOO GROSS: {', '.join(sorted(counted))}" * gross
        print(f"[{count}/{len(named)}] {perturbation}: {verdict}, fails {len(failed)} clauses")
        sys.stdout.flush()
    count = sum(map(len, named.values()))
    print(f"{count} clauses, {len(named)} perturbations, {problems} problems")
    return int(problems > 0)


def _record_calls(
    tests: CollectedTests, names: Sequence[str], processes: int
) -> tuple[CallLog, set[str]]:
    """Run tests without a perturbation; return their calls and the tests that pass."""
    log: CallLog = defaultdict(list)
    passed: set[str] = set()
    chunks = [names[start : start + _CHUNK] for start in range(0, len(names), _CHUNK)]
    jobs = (forks.Job("recorded calls", partial(_record_chunk, tests, chunk)) for chunk in chunks)
    for ended in forks.run(jobs, processes=processes):
        if ended.result is None:
            raise RuntimeError(f"a process without a perturbation hung or crashed:\n{ended.log}")
        passed.update(ended.result["passed"])
        for line in ended.result["calls"]:
            test, function, found = line.split("\t")
            log[function].append((test, frozenset(found.split())))
        for test in ended.result["failed"]:
            print(f"not judged, because it fails with replaced functions: {test}")
    log[DEVICES] = [(t, frozenset()) for t in names if tests.clauses[t][0].startswith(DEVICES)]
    return log, passed


def _record_chunk(tests: CollectedTests, names: Sequence[str], folder: Path) -> Any:
    calls = folder / "calls"
    calls.touch()
    os.environ.update({replacement.LINE: "", replacement.LOG: str(calls)})
    verdicts = dict(tests.run(names))
    lists = {v: [test for test in names if verdicts[test] == v] for v in ("passed", "failed")}
    return {**lists, "calls": calls.read_text(encoding="utf-8").splitlines()}


def _select_tests(
    perturbation: Perturbation,
    tests: CollectedTests,
    log: CallLog,
    passed: set[str],
    named: Iterable[str],
) -> dict[str, list[str]]:
    """Return the tests of each clause that a perturbation reaches; those of ``named`` first."""
    by_clause: dict[str, list[str]] = {name: [] for name in named}
    calls = log[perturbation.function]
    reached = dict.fromkeys(test for test, found in calls if perturbation.guard <= found)
    for test in reached:
        if test in passed:
            for name in tests.clauses[test]:
                by_clause.setdefault(name, []).append(test)
    for name in named:  # a test of a signature makes no call
        by_clause[name] = by_clause[name] or [t for t in passed if name in tests.clauses[t]]
    return by_clause


def _try(
    tests: CollectedTests,
    perturbation: Perturbation,
    by_clause: Mapping[str, Sequence[str]],
    _: Path,
) -> None:
    """Run the tests of each clause with a perturbation, until one fails. Print the clauses."""
    os.environ[replacement.LINE] = str(perturbation)
    with ExitStack() as stack:
        if perturbation.function == DEVICES:
            tests.find_capabilities()
            stack.enter_context(simulator.fault(perturbation.kind))
        for clause, names in by_clause.items():
            print(f"\n{_BEGIN}{clause}", flush=True)
            for _test, verdict in tests.run(names):
                undo()
                if verdict == "failed":
                    break
            else:
                print(f"\n{_PASSED}{clause}", flush=True)


def _read_failed(log: str) -> set[str]:
    """Return the clauses with a test that failed, hung or crashed."""
    lines = log.splitlines()
    passed = {line.removeprefix(_PASSED) for line in lines if line.startswith(_PASSED)}
    return {line.removeprefix(_BEGIN) for line in lines if line.startswith(_BEGIN)} - passed


if __name__ == "__main__":
    sys.exit(main())
