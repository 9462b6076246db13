"""Every argument of every public function, replaced by each wrong value.

``python -m impl_tests.faults.bad_input`` prints the counts of the outcomes, and each bad outcome.
It returns 1 if an outcome is bad: also if an error does not name the argument. With ``--target
torch.nn.parallel`` only the arguments that it has are tried, and ``--accepted`` also prints the
accepted values.

A process tries all values of one argument. If it hangs or dies, only this outcome is reported.
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
from .cases import CASES, NAMES, Case
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


def try_values(
    target: Target, cases: Sequence[str], values: Sequence[str], processes: int
) -> Iterator[Outcome]:
    """Call each function with each of its arguments replaced by each value; yield outcomes."""
    # Another process lists the arguments, which include tensors on devices: a process that has
    # used a device cannot fork.
    (listed,) = forks.run([forks.Job("arguments", partial(_list_arguments, cases))], processes=1)
    jobs = [
        forks.Job((name, argument), partial(_run, target, name, argument, values))
        for name, argument in listed.result
    ]
    for result in forks.run(jobs, processes=processes):
        if result.result is not None:
            yield from (Outcome(*each) for each in result.result)
        else:
            verdict = "hang" if result.exit_code == TIME_IS_UP else "crash"
            yield Outcome(_title(*result.job.subject), "", verdict, result.log[-3000:])


def _list_arguments(cases: Sequence[str], _: Path) -> list[tuple[str, str]]:
    return [(name, argument) for name in cases for argument in _ALL_CASES[name].arguments()]


def _title(case: str, argument: str) -> str:
    return f"{case}({argument})"


def _run(
    target: Target, name: str, argument: str, values: Sequence[str], _: Path
) -> list[Outcome]:
    faulthandler.enable(2)
    warnings.simplefilter("ignore")
    case = _ALL_CASES[name]
    expected = _compute(target, case, case.arguments())
    outcomes = []
    for value in values:
        print(f"value: {value}", flush=True)
        faulthandler.dump_traceback_later(_LIMIT, exit=True, file=2)
        verdict, detail = _try_value(target, case, {argument: VALUES[value]()}, expected)
        outcomes.append(Outcome(_title(name, argument), value, verdict, detail))
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
        verdict, detail = (
            _judge(error, case.names.get(argument, NAMES.get(argument, argument))),
            describe(error),
        )
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
    """Try all values. Return 1 if an outcome is bad."""
    options = _parser().parse_args()
    known = CASES if options.target == "torch.nn.parallel" else _ALL_CASES
    cases = [*known] if options.cases is None else options.cases.split(",")
    values = [*VALUES][:: options.every]
    shown = {*BAD, "accepted"} if options.accepted else {*BAD}
    counts = Counter[str]()
    for each in try_values(prepare(options.target), cases, values, options.processes):
        counts[each.verdict] += 1
        if each.verdict in shown:
            print(f"{each.argument} = {each.value}: {each.verdict}\n  {each.detail}", flush=True)
    print(f"{options.target}: {counts.total()} calls: {dict(counts)}")
    return int(any(verdict in BAD for verdict in counts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m impl_tests.faults.bad_input")
    parser.add_argument("--target", default="impl", help="default: impl")
    parser.add_argument("--cases", help="functions, with commas (default: all)")
    parser.add_argument("--every", type=int, default=1, help="try every n-th value (default: 1)")
    parser.add_argument("--accepted", action="store_true", help="print the accepted values, too")
    parser.add_argument("--processes", type=int, default=2, help="at a time (default: 2)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
