"""Inject faults into calls of the public functions.

Each trial repeats a call of ``impl_tests/helpers/cases.py`` in a process of its own, with one
kind of fault: an interrupt at a random instant, or a device that refuses an allocation. After each
fault it compares the state of the process and the result of a call without a fault. A bad verdict
names the options that repeat its trial; only the instant of an interrupt differs.
"""

import argparse
import gc
import importlib
import itertools
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from impl_tests.helpers import forks
from impl_tests.helpers.cases import CASES, ORDINALS, RepeatedCall, Result, are_equal
from spec_tests import simulator
from spec_tests.checks.leaks import disable_gc, wait_until
from spec_tests.machine import process_state
from spec_tests.machine.devices import SIMULATED_DEVICES, Topology
from spec_tests.simulator import native

#: The number of interrupted calls in one trial.
_INTERRUPTED_CALLS = 20
_TOPOLOGY = Topology("sim", tuple(range(SIMULATED_DEVICES)))
_LOCAL = threading.local()
#: The verdicts that are not bad.
GOOD = ("not reached", "reported")


class _Interrupt:
    """A KeyboardInterrupt that a signal handler raises, as Python's own handler of SIGINT does.

    Args:
        delay: Seconds until the signal.
    """

    error, text = KeyboardInterrupt, ""

    def __init__(self, delay: float) -> None:
        self._delay, self._is_armed, self.place = delay, False, ""

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._handle)
        self._is_armed = True
        signal.setitimer(signal.ITIMER_REAL, max(self._delay, 1e-6))

    def __exit__(self, *_: object) -> None:
        self._is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        assert frame is not None
        # `copyreg._slotnames` discards all exceptions, also KeyboardInterrupt. So does Python in
        # callbacks of weak references, which `_weakrefset` has.
        if self._is_armed and frame.f_globals["__name__"] not in ("copyreg", "_weakrefset"):
            self._is_armed = False
            self.place = f"at {frame.f_code.co_filename}:{frame.f_lineno}"
            raise KeyboardInterrupt


class _OutOfMemory:
    """A device that allows only some allocations. A call that succeeds has needed no other one."""

    error, text = torch.OutOfMemoryError, "sim out of memory"

    def __init__(self, ordinal: int, allocations: int) -> None:
        self._fault, self.place = ("no-memory", ordinal, allocations), ""

    def __enter__(self) -> None:
        native.extension().set_fault(*self._fault)

    def __exit__(self, *error: object) -> None:
        native.extension().set_fault("", -1)
        if error[0] is not None:
            self.place = "on {1} after {2} allocations".format(*self._fault)


Fault = _Interrupt | _OutOfMemory


def _interrupts(rng: random.Random, seconds: float) -> Iterator[Fault]:
    """Interrupt calls that take ``seconds`` at random instants."""
    for _ in range(_INTERRUPTED_CALLS):
        yield _Interrupt(rng.uniform(0, 1.2 * seconds))


def _out_of_memory(rng: random.Random, _: float) -> Iterator[Fault]:
    """Allow no allocation in the first call, and one more in each further call that fails."""
    ordinal = rng.choice(ORDINALS)
    for allocations in itertools.count():
        yield (fault := _OutOfMemory(ordinal, allocations))
        if not fault.place:
            return


KINDS = {"interrupt": _interrupts, "memory": _out_of_memory}


@dataclass(frozen=True)
class Trial:
    """The seed of a trial, the kind of its faults, and the name of its case."""

    seed: int
    kind: str
    case: str

    @classmethod
    def draw(cls, seed: int) -> "Trial":
        """Return the trial of a seed."""
        rng = random.Random(seed)
        cases = [name for name, case in CASES.items() if case.has_faults]
        return cls(seed, rng.choice([*KINDS]), rng.choice(cases))

    def __str__(self) -> str:
        return f"--seed {self.seed} --count 1: {self.kind} in {self.case}"


def main() -> int:
    """Run random trials. Return 1 if a verdict is bad."""
    parser = argparse.ArgumentParser(
        prog="python -m impl_tests.long_checks.faults", description=main.__doc__
    )
    parser.add_argument("--count", type=int, default=300, help="trials to run (default: 300)")
    parser.add_argument("--seed", type=int, help="the seed of the first trial; the others follow")
    parser.add_argument("--processes", type=int, default=2, help="at a time (default: 2)")
    options = parser.parse_args()
    seed = random.randrange(10**9) if options.seed is None else options.seed
    prepare()
    return run(map(Trial.draw, range(seed, seed + options.count)), processes=options.processes)


def prepare() -> None:
    """Register the devices. Use none of them, so that this process can fork."""
    torch.set_num_threads(1)
    simulator.enable(SIMULATED_DEVICES)
    # The first backward needs these modules.
    for name in ("torch.fx.experimental.symbolic_shapes", "torch._dynamo"):
        importlib.import_module(name)
    # A garbage collection in a forked process then skips all objects that exist now.
    gc.collect()
    gc.freeze()


def run(trials: Iterator[Trial], *, processes: int = 1, limit: float = 90) -> int:
    """Run trials; print the bad verdicts and the numbers of all. Return 1 if one is bad.

    Args:
        trials: The trials.
        processes: The number of trials at a time.
        limit: Seconds without output after which a process counts as hung.
    """
    counts = Counter[tuple[str, str]]()
    jobs = (forks.Job(trial, partial(_run_trial, trial)) for trial in trials)
    for ended in forks.run(jobs, processes=processes, limit=limit):
        end = "hang" if ended.is_hung else f"exit status {ended.exit_code}"
        verdicts = [(end, "")] if ended.result is None else ended.result
        counts.update((ended.subject.kind, verdict) for verdict, _ in verdicts)
        for verdict, detail in verdicts:
            if verdict not in GOOD:
                print(f"{verdict} ({ended.subject})\n  {detail}\n{ended.log}", flush=True)
    bad = sum(count for (_, verdict), count in counts.items() if verdict not in GOOD)
    print(*(f"{count:7}  {kind}: {name}" for (kind, name), count in counts.items()), sep="\n")
    print(f"{counts.total()} verdicts, {bad} bad")
    return int(bad > 0)


def _run_trial(trial: Trial, _: Path) -> list[tuple[str, str]]:
    """Inject faults until one has a bad verdict. Return the verdicts and their details."""
    # Another process computes the expected result: here no call precedes the first fault.
    (computed,) = forks.run([forks.Job("the call", partial(_compute, trial))], processes=1)
    expected, seconds = computed.result
    call, verdicts, rng = (
        RepeatedCall(trial.case),
        [("not reached", "")],
        random.Random(trial.seed),
    )
    with ExitStack() as stack:
        _enter_settings(trial, stack)
        for fault in KINDS[trial.kind](rng, seconds):
            verdicts.append(_inject(call, fault, expected))
            # `forks` ends a process that prints nothing for a long time.
            print(*verdicts[-1], flush=True)
            if verdicts[-1][0] not in GOOD:
                stack.pop_all()  # The call may have changed the settings.
                break
    return verdicts[1:]


def _enter_settings(trial: Trial, stack: ExitStack) -> None:
    """Set a thread-local value; for each second seed, also settings that a new thread lacks."""
    _LOCAL.value = "set by the caller"
    if trial.seed % 2:
        stack.enter_context(torch.inference_mode())
        stack.enter_context(torch.autocast("sim", dtype=torch.float16))
        stack.enter_context(torch.accelerator.device_index(1))
        stack.enter_context(torch.Stream(device="sim:2"))
        stack.enter_context(disable_gc())


def _compute(trial: Trial, _: Path) -> tuple[Result, float]:
    """Make a call twice. Return the result, and the seconds of the second call."""
    call = RepeatedCall(trial.case)
    with ExitStack() as stack:
        _enter_settings(trial, stack)
        call.compute(call.create_arguments())
        arguments, start = call.create_arguments(), time.perf_counter()
        return call.compute(arguments), time.perf_counter() - start


def _inject(call: RepeatedCall, fault: Fault, expected: Result) -> tuple[str, str]:
    """Make a call with a fault, then one without a fault. Return the verdict and its detail."""
    arguments = call.create_arguments()
    state, threads, memory = _read_state(call, arguments), {*threading.enumerate()}, _read_memory()
    try:
        with fault:
            found = call.compute(arguments)
    except (fault.error, Exception) as error:
        if not (isinstance(error, fault.error) and fault.text in str(error)):
            return "not reported", f"{fault.place}: {error!r}"
    else:
        if fault.place or not are_equal(found, expected):
            return "lost" if fault.place else "wrong result", fault.place
        del found
    if changes := process_state.changes(state, _read_state(call, arguments)):
        return "state left", f"{fault.place}: {'; '.join(changes)}"
    if not are_equal(call.compute(call.create_arguments()), expected):
        return "wrong result", f"of the next call, {fault.place}"

    def is_freed() -> bool:
        gc.collect()
        new = {*threading.enumerate()} - threads
        are_kept = all(each.name.startswith("parallel_apply") for each in new)
        grown = any(now > before for now, before in zip(_read_memory(), memory, strict=True))
        return are_kept and len(new) <= len(ORDINALS) and not grown

    is_clean = wait_until(is_freed)
    return ("reported" if fault.place else "not reached") if is_clean else "leak", fault.place


def _read_state(call: RepeatedCall, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        **process_state.read(_TOPOLOGY),
        "thread-local value": getattr(_LOCAL, "value", None),
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "tracking of views": torch._C._is_view_replay_enabled(),
        "modules": [
            ({name: id(value) for name, value in vars(each).items()}, len(each._forward_hooks))
            for each in call.modules(arguments)
        ],
        "parameters": [
            (id(each), None if each.is_inference() else each._version)
            for module in call.modules(arguments)
            for each in module.parameters()
        ],
    }


def _read_memory() -> list[int]:
    """Return the number of allocated bytes on each device, without the cache of autocast."""
    torch.clear_autocast_cache()
    return [*map(torch.accelerator.memory_allocated, range(torch.accelerator.device_count()))]


if __name__ == "__main__":
    sys.exit(main())
