"""Every argument of every public function, replaced by each wrong value.

``python -m impl_tests.faults.bad_input`` runs impl and torch.nn.parallel. It prints the counts of
the outcomes, each bad outcome, and the values that one accepts and the other refuses. It
returns 1 if an outcome of impl is bad: also if an error does not name the argument. The arguments
that only impl has are tried with impl only.

A process tries all values of one argument. If the process hangs or dies at a value, a new process
tries all other values of the argument.
"""

import argparse
import faulthandler
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from impl_tests import forks
from spec_tests.harness.environment.target import Target

from .calls import prepare, tensors_in
from .cases import CASES, Case
from .cases_of_impl import CASES_OF_IMPL
from .state import find_changes, read_state
from .trial import TIME_IS_UP
from .verdicts import are_equal, describe
from .wrong_values import VALUES

__all__ = ["BAD", "VERDICTS", "Outcome", "try_values"]

_ALL_CASES = CASES | CASES_OF_IMPL
#: Seconds after which a process that tries one value counts as hung.
_LIMIT = 60
#: Verdict -> its meaning.
VERDICTS = {
    "refused": "an error names the argument, the device or, if a module raised it, the replica",
    "accepted": "the call returned a result",
    "no name": "an error does not name the argument",
    "no Exception": "the call raised a SystemError, or an exception that is no Exception",
    "state left": "after the call a setting of the thread or of the process differs",
    "next call wrong": "the next call failed or returned a wrong result",
    "hang": "the call did not end in time",
    "crash": "the process died",
}
#: The verdicts that are bad: all from "no name" on.
BAD = tuple(VERDICTS)[2:]
#: An error with this text was raised by a module, and parallel_apply names the replica.
_IN_REPLICA = re.compile(r"Caught \w+ in replica \d+ on device")


class Outcome(NamedTuple):
    """The outcome of a call with one wrong value.

    Args:
        argument: The function and its argument, such as ``comm.scatter(dim)``.
        value: The name of the value.
        verdict: One of ``VERDICTS``.
        detail: The error, or what is wrong.
    """

    argument: str
    value: str
    verdict: str
    detail: str = ""


class _Task(NamedTuple):
    case: str
    argument: str
    values: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.case}({self.argument})"


def try_values(
    target: Target, cases: Sequence[str], values: Sequence[str], processes: int
) -> Iterator[Outcome]:
    """Call each function with each of its arguments replaced by each value; yield outcomes."""
    # Another process lists the arguments, which include tensors on devices: a process that has
    # used a device cannot fork.
    (listed,) = forks.run([forks.Job("arguments", partial(_list_arguments, cases))], processes=1)
    arguments: dict[str, list[str]] = listed.result
    tasks = [
        _Task(name, argument, tuple(values)) for name in cases for argument in arguments[name]
    ]
    while tasks:
        unfinished: list[_Task] = []
        jobs = [forks.Job(task, partial(_run, target, task)) for task in tasks]
        for result in forks.run(jobs, processes=processes):
            task: _Task = result.job.subject
            if result.result is not None:
                yield from (Outcome(*each) for each in result.result)
                continue
            last = _last_value(result.log)
            verdict = "hang" if result.exit_code == TIME_IS_UP else "crash"
            yield Outcome(task.title, last, verdict, result.log[-3000:])
            # The process has not returned the outcomes of the earlier values: try them again.
            unfinished.append(
                task._replace(values=tuple(each for each in task.values if each != last))
            )
        tasks = unfinished


def _list_arguments(cases: Sequence[str], _: Path) -> dict[str, list[str]]:
    return {name: [*_ALL_CASES[name].arguments()] for name in cases}


def _last_value(log: str) -> str:
    """Return the name of the value that the process tried last."""
    names = [line.removeprefix("value: ") for line in log.splitlines() if line[:7] == "value: "]
    return names[-1]


def _run(target: Target, task: _Task, _: Path) -> list[Outcome]:
    faulthandler.enable(2)
    warnings.simplefilter("ignore")
    case = _ALL_CASES[task.case]
    expected = _compute(target, case, case.arguments())
    outcomes = []
    for name in task.values:
        print(f"value: {name}", flush=True)
        faulthandler.dump_traceback_later(_LIMIT, exit=True, file=2)
        verdict, detail = _try_value(target, case, {task.argument: VALUES[name]()}, expected)
        outcomes.append(Outcome(task.title, name, verdict, detail))
    faulthandler.cancel_dump_traceback_later()
    return outcomes


def _try_value(
    target: Target, case: Case, replaced: dict[str, Any], expected: list[torch.Tensor]
) -> tuple[str, str]:
    before = read_state()
    try:
        case.call(target, **(case.arguments() | replaced))
        verdict, detail = "accepted", ""
    except Exception as error:
        (argument,) = replaced
        verdict, detail = _judge(error, case.names.get(argument, argument)), describe(error)
    except BaseException as error:
        verdict, detail = "no Exception", describe(error)
    changes = [*find_changes(before, read_state())]
    if changes:
        return "state left", "; ".join(changes)
    try:
        if not are_equal(_compute(target, case, case.arguments()), expected):
            return "next call wrong", detail
    except Exception as error:
        return "next call wrong", describe(error)
    return verdict, detail


def _judge(error: Exception, name: str) -> str:
    if isinstance(error, SystemError):
        return "no Exception"
    # The text may name the argument by chance. A note says which argument is wrong.
    text = "\n".join(getattr(error, "__notes__", ())) or describe(error, limit=None)
    is_named = re.search(rf"\b({name})\b", text.removeprefix("Argument:"))
    return "refused" if is_named or _IN_REPLICA.search(text) else "no name"


def _compute(target: Target, case: Case, arguments: dict[str, Any]) -> list[torch.Tensor]:
    return [each.detach().cpu() for each in tensors_in(case.call(target, **arguments))]


def main() -> int:
    """Try all values with impl and torch.nn.parallel. Return 1 if an outcome of impl is bad."""
    options = _parser().parse_args()
    cases = [*_ALL_CASES] if options.cases is None else options.cases.split(",")
    values = [*VALUES][:: options.every]
    outcomes = {}
    for name in ("impl", "torch.nn.parallel"):
        known = [each for each in cases if name == "impl" or each in CASES]
        found = [*try_values(prepare(name), known, values, options.processes)]
        outcomes[name] = {(each.argument, each.value): each for each in found}
        _print_outcomes(name, found)
    _print_accepted(outcomes, "impl", "torch.nn.parallel")
    _print_accepted(outcomes, "torch.nn.parallel", "impl")
    return int(any(each.verdict in BAD for each in outcomes["impl"].values()))


def _print_outcomes(name: str, outcomes: Sequence[Outcome]) -> None:
    counts = Counter(each.verdict for each in outcomes)
    print(f"{name}: {len(outcomes)} calls: {dict(counts)}")
    for each in outcomes:
        if each.verdict in BAD:
            print(f"  {each.argument} = {each.value}: {each.verdict}\n    {each.detail}")
    sys.stdout.flush()


def _print_accepted(
    outcomes: dict[str, dict[tuple[str, str], Outcome]], name: str, other_name: str
) -> None:
    """Print for each argument the values that ``name`` accepts and ``other_name`` refuses."""
    found: dict[str, list[str]] = {}
    for (argument, value), outcome in outcomes[name].items():
        other = outcomes[other_name].get((argument, value))
        is_refused = other is not None and other.verdict in ("refused", "no name")
        if outcome.verdict == "accepted" and other is not None and is_refused:
            found.setdefault(argument, []).append(f"{value} [{other.detail[:80]}]")
    print(f"accepted by {name}, refused by {other_name} [its error]:")
    for argument, values in found.items():
        print(f"  {argument}: {len(values)}\n    " + "\n    ".join(values))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m impl_tests.faults.bad_input")
    parser.add_argument("--cases", help="functions, with commas (default: all)")
    parser.add_argument("--every", type=int, default=1, help="try every n-th value (default: 1)")
    parser.add_argument("--processes", type=int, default=2, help="at a time (default: 2)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
