"""Check the table of perturbations: ``python -m impl_tests.wrong [CLAUSE ...]``."""

import argparse
import inspect
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from impl_tests.collected import CHAPTERS
from impl_tests.wrong import DEVICES, TABLE, Perturbation, facts, load, state
from impl_tests.wrong.kinds import KINDS
from impl_tests.wrong.runs import EndedJob, Job, Step, Suite, collect
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


def main() -> int:
    """Run the suite with each perturbation. Return 1 if one is not noticed, or is too gross.

    Without names, also check that each perturbation fails at most ten clauses. With names this is
    not checked, because it needs all tests.
    """
    parser = argparse.ArgumentParser(prog="python -m impl_tests.wrong", description=main.__doc__)
    parser.add_argument("clauses", nargs="*", help="clauses, or chapters, to try (default: all)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--list", action="store_true", help="print the kinds and the facts")
    parser.add_argument("--table", type=Path, default=TABLE, help="default: %(default)s")
    options = parser.parse_args()
    if options.list:
        _print_kinds_and_facts()
        return 0
    _select(options.clauses)  # Refuse an unknown name before the tests are collected.
    found: list[int] = []

    def run(suite: Suite) -> None:
        with TemporaryDirectory() as folder:
            found.append(_check(suite, options, Path(folder) / "log"))

    collect(run, *CHAPTERS)
    return max(found, default=2)


def _print_kinds_and_facts() -> None:
    kinds: dict[str, Callable[..., Any]] = dict(KINDS)
    kinds |= {f"{name}:WORD": change for name, change in KINDS.detailed.items()}
    for name, change in sorted(kinds.items()):
        print(f"{name}  {_describe(change)}")
    print(f"facts of a call: {' '.join(sorted(facts.CALL))}")
    print(f"facts ARGUMENT:FACT of an argument: {' '.join(sorted(facts.ARGUMENT))}")


def _describe(change: Callable[..., Any]) -> str:
    """Return the first line of the docstring of a kind, or of the change that it makes."""
    inner = inspect.getclosurevars(change).nonlocals.values()
    texts = [inspect.getdoc(each) for each in (change, *inner) if inspect.isfunction(each)]
    return next((text.splitlines()[0] for text in texts if text), "")


def _select(names: Sequence[str]) -> list[str]:
    known = clauses.load()
    for name in names:
        if not any(clause.is_named_by(name) for clause in known.values()):
            raise SystemExit(f"no clause is called {name}")
    return [n for n, c in known.items() if not names or any(map(c.is_named_by, names))]


def _record(
    suite: Suite, tests: Sequence[str], processes: int, path: Path
) -> tuple[CallLog, set[str]]:
    """Run tests without a perturbation; return their calls and the tests that pass."""
    path.touch()
    starts = range(0, len(tests), _CHUNK)
    jobs = [
        Job([Step(state.LOGGING, tests[start : start + _CHUNK])], None, log=path)
        for start in starts
    ]
    passed: set[str] = set()
    for ended in suite.run(jobs, processes):
        if ended.status:
            print(f"calls are missing: a process ended with status {ended.status}\n{ended.output}")
        passed |= {test for _, test, verdict in ended.verdicts if verdict == "pass"}
        for _, test, verdict in ended.verdicts:
            if verdict == "fail":
                print(f"not judged, because it fails with wrapped functions: {test}")
    return _read_log(path, suite), passed


def _read_log(path: Path, suite: Suite) -> CallLog:
    """Return the calls in a file that `state.record` has written, and those of `DEVICES`."""
    log: CallLog = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        test, function, found = line.split("\t")
        log[function].append((test, frozenset(found.split())))
    for test, (name, *_) in suite.clauses.items():
        if name.startswith(DEVICES):
            log[DEVICES].append((test, frozenset()))
    return log


def _check(suite: Suite, options: argparse.Namespace, path: Path) -> int:
    processes = options.processes
    selected = set(_select(options.clauses))
    table = {name: entry for name, entry in load(options.table).items() if name in selected}
    tests = [
        test
        for test, ids in suite.clauses.items()
        if not options.clauses or selected.intersection(ids)
    ]
    log, passed = _record(suite, tests, processes, path)
    named: dict[Perturbation, list[str]] = defaultdict(list)
    for name, perturbation in table.items():
        named[perturbation].append(name)
    jobs = [_job(each, suite, log, passed, names) for each, names in named.items()]
    problems = 0
    for count, ended in enumerate(suite.run(jobs, processes), 1):
        perturbation = Perturbation.parse(_line(ended.job))
        failed = _failed(ended)
        survived = [name for name in named[perturbation] if name not in failed]
        counted = [name for name in failed if not name.startswith(_LIVES)]
        gross = not options.clauses and len(counted) > _MOST
        problems += bool(survived) + gross
        verdict = f"SURVIVED {', '.join(survived)}" if survived else "caught"
        verdict += f", TOO GROSS: {', '.join(sorted(counted))}" * gross
        print(f"[{count}/{len(jobs)}] {perturbation}: {verdict}, fails {len(failed)} clauses")
        sys.stdout.flush()
    print(f"{len(table)} clauses, {len(named)} perturbations, {problems} problems")
    return int(problems > 0)


def _job(
    perturbation: Perturbation, suite: Suite, log: CallLog, passed: set[str], named: Sequence[str]
) -> Job:
    """Return a job with a step for each clause that the perturbation reaches, ``named`` first."""
    by_clause: dict[str, list[str]] = {name: [] for name in named}
    calls = log[perturbation.function]
    reached = dict.fromkeys(test for test, found in calls if perturbation.guard <= found)
    for test in reached:
        if test in passed:
            for name in suite.clauses[test]:
                by_clause.setdefault(name, []).append(test)
    for name in named:  # a test of a signature makes no call
        by_clause[name] = by_clause[name] or [t for t in passed if name in suite.clauses[t]]
    line = str(perturbation)
    steps = [Step(line, tests, clause=name) for name, tests in by_clause.items()]
    return Job(steps, [perturbation.function])


def _line(job: Job) -> str:
    return job.steps[0].line


def _failed(ended: EndedJob) -> set[str]:
    """Return the clauses with a test that failed, hung or crashed."""
    steps = ended.job.steps
    failed = {steps[number].clause for number, _, verdict in ended.verdicts if verdict == "fail"}
    if ended.status:
        done = ended.verdicts[-1][0] if ended.verdicts else 0
        failed.add(steps[done].clause)
    return failed


if __name__ == "__main__":
    sys.exit(main())
