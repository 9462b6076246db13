"""Calls in unusual surroundings, such as threads, event loops, signal handlers and forks."""

import asyncio
import atexit
import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import torch

from spec_tests.harness.environment.target import Target

from .calls import Call, draw_call
from .draws import draw_function
from .injection import describe, inject
from .interrupts import measure
from .target import prepare
from .verdicts import Finding, are_equal

__all__ = ["SURROUNDINGS", "run_surroundings"]

#: The number of threads that call at the same time.
_CALLERS = 32
#: The number of calls during which signals arrive or another thread forks.
_ROUNDS = 20
#: Seconds after which a new process counts as hung.
_PROCESS_LIMIT = 40
#: A part of the text of the simulator's error in a forked child.
_FORK_WORDS = "forked subprocess"

#: A function that returns a new call of the drawn public function on the drawn devices.
_Make = Callable[[], Call]


def _is_right(call: Call) -> bool:
    expected = call.expected()
    call.drop_grads()
    return are_equal(call.compute(), expected)


def _in_daemon_thread(make: _Make) -> bool:
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(_is_right(make())), daemon=True)
    thread.start()
    thread.join()
    return results == [True]


def _in_32_threads(make: _Make) -> bool:
    calls = [make() for _ in range(_CALLERS)]
    with ThreadPoolExecutor(_CALLERS) as pool:
        return all(pool.map(_is_right, calls))


def _in_event_loop(make: _Make) -> bool:
    calls = [make() for _ in range(4)]

    async def run() -> bool:
        in_threads = [asyncio.to_thread(_is_right, call) for call in calls[1:]]
        return all([_is_right(calls[0]), *await asyncio.gather(*in_threads)])

    return asyncio.run(run())


def _in_del(make: _Make) -> bool:
    results: list[bool] = []

    class Caller:
        def __init__(self, call: Call) -> None:
            self.call, self.cycle = call, self

        def __del__(self) -> None:
            results.append(_is_right(self.call))

    Caller(make())
    gc.collect()
    return results == [True]


def _in_signal_handler(make: _Make) -> bool:
    """Call in the handler of a signal that arrives during another call."""
    outer, inner = make(), make()
    duration, results = measure(outer), []

    def handle(signum: int, frame: FrameType | None) -> None:
        with torch.enable_grad():  # The interrupted function may have disabled grad mode.
            results.append(_is_right(inner))

    signal.signal(signal.SIGALRM, handle)
    try:
        for number in range(_ROUNDS):
            signal.setitimer(signal.ITIMER_REAL, duration * (number + 0.5) / _ROUNDS)
            results.append(_is_right(outer))
        return all(results)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # The handler would keep the calls alive.


def _during_forks(make: _Make) -> bool:
    """Call while another thread forks children that exit immediately. Return if all is right."""
    call, has_ended = make(), threading.Event()

    def fork() -> None:
        while not has_ended.wait(0.001):
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)

    thread = threading.Thread(target=fork)
    thread.start()
    try:
        return all(_is_right(call) for _ in range(_ROUNDS))
    finally:
        has_ended.set()
        thread.join()


def _in_forked_child(make: _Make) -> bool:
    """Call in the child of a process that has used the devices.

    The simulator cannot be used in such a child, so a call with tensors must raise the simulator's
    error. A call without tensors uses no device.
    """
    call = make()
    has_tensors = bool(call.compute())
    child = os.fork()
    if child == 0:
        try:
            call.compute()
        except RuntimeError as error:
            os._exit(0 if _FORK_WORDS in str(error) else 2)
        except BaseException:
            os._exit(3)
        os._exit(4 if has_tensors else 0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


#: Name of the surroundings -> a function that makes calls in them. It returns whether all results
#: are right.
SURROUNDINGS: dict[str, Callable[[_Make], bool]] = {
    "asyncio": _in_event_loop,
    "32 callers": _in_32_threads,
    "daemon thread": _in_daemon_thread,
    "__del__": _in_del,
    "signal handler": _in_signal_handler,
    "other thread forks": _during_forks,
    "forked child": _in_forked_child,
}
#: The surroundings for which a new Python process is started.
_NEW_PROCESS = ("new process", "interpreter exit")


def run_surroundings(target: Target, rng: random.Random) -> Iterator[Finding]:
    """Call one function in unusual surroundings. Yield the verdict."""
    name, seed = draw_function(target, rng), rng.random()
    surroundings = rng.choice([*SURROUNDINGS, *_NEW_PROCESS])
    if surroundings in _NEW_PROCESS:
        arguments = json.dumps([target.name, name, seed, surroundings])
        print(arguments, flush=True)
        yield _run_new_process(surroundings, arguments)
        return

    call = draw_call(target, name, random.Random(seed))
    print(f"{call}: {surroundings}", flush=True)

    def run_with_fault(_: Sequence[torch.Tensor]) -> Finding:
        try:
            is_right = SURROUNDINGS[surroundings](call.repeat)
        except BaseException as error:
            return Finding("other error", surroundings, describe(error))
        return Finding("right" if is_right else "wrong result", surroundings)

    yield inject(call, run_with_fault, _CALLERS * len(call.ordinals))


def _run_new_process(surroundings: str, arguments: str) -> Finding:
    command = [sys.executable, "-m", __name__, arguments]
    try:
        completed = subprocess.run(
            command, capture_output=True, text=True, timeout=_PROCESS_LIMIT, check=False
        )
    except subprocess.TimeoutExpired as error:
        return Finding("hang", surroundings, str(error.stderr))
    output = f"status {completed.returncode}: {completed.stdout}{completed.stderr}"
    if completed.returncode < 0:
        return Finding("crash", surroundings, output)
    is_right = completed.returncode == 0 and completed.stdout == "True\n"
    return Finding("right" if is_right else "other error", surroundings, output)


def main(arguments: Sequence[Any]) -> None:
    """Call immediately, or when the interpreter exits. Print whether the result is right."""
    target_name, name, seed, surroundings = arguments
    call = draw_call(prepare(target_name), name, random.Random(seed))
    if surroundings == "new process":
        print(_is_right(call))
        return
    call.expected()  # The oracle cannot start threads at exit.
    atexit.register(lambda: print(_is_right(call)))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
