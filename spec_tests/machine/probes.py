"""Try functions of a back end one after the other. A call may end the process, or never return."""

import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from traceback import walk_tb
from typing import Literal

import pytest

from spec_tests.machine.devices import Topology, make_topology

State = Literal["there", "missing", "wrong", "not-run"]
#: Tries the function with this name on the devices of a topology. An assertion of the suite
#: fails if a result is wrong; any other exception means that the back end lacks the function. It
#: may also end as a test that is not-run.
Probe = Callable[[str, Topology], None]

#: Seconds after which a probe counts as hanging.
PROBE_LIMIT = 120
#: Seconds after which a process that has not started counts as unable to use the devices.
START_LIMIT = 600
#: Seconds that a process has to end the processes of its devices.
END_LIMIT = 20
#: Seconds between two lines of progress.
HEARTBEAT = 10
#: The file descriptors of stdout and stderr.
_OUTPUTS = (1, 2)
_CONTEXT = multiprocessing.get_context("spawn")
#: Prints a line of progress. A command or a run sets it.
say: Callable[[str], object] = str


@dataclass(frozen=True)
class Finding:
    """The result of a probe.

    Args:
        name: The name of the function that was tried.
        state: ``there`` if it works, ``wrong`` if its result is wrong, ``missing`` if it raises an
            error, ends the process or never returns, ``not-run`` if there are too few devices.
        text: The first line of the error, or the reason; empty if the function works.
        warnings: The first lines of the warnings.
    """

    name: str
    state: State
    text: str = ""
    warnings: tuple[str, ...] = ()


#: The findings on real devices. The key has the probe, the names, and the topology. A
#: run sends them to the workers of pytest-xdist.
FOUND: dict[tuple[Probe, tuple[str, ...], Topology], list[Finding]] = {}


def find_all(probe: Probe, names: Sequence[str], topology: Topology) -> list[Finding]:
    """Return the finding for each of ``names``.

    A new process tries them. If a call ends the process or never returns, another process tries
    the remaining ones. Simulated devices, and devices that no second process can use, are tried in
    this process.
    """
    if topology.accelerator == "sim":
        return [try_probe(probe, name, topology) for name in names]
    key = probe, tuple(names), topology
    if key not in FOUND:
        FOUND[key] = []
        while len(FOUND[key]) < len(names):
            FOUND[key] += _find_in_new_process(probe, names[len(FOUND[key]) :], topology)
    return FOUND[key]


def try_probe(probe: Probe, name: str, topology: Topology) -> Finding:
    """Return the finding for ``name``, tried in this process."""
    state: State = "there"
    text = ""
    with _without_output(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            probe(name, topology)
        except pytest.skip.Exception as error:
            state, text = "not-run", _first_line(error)
        except Exception as error:  # a back end may raise anything for a missing function
            while isinstance(error, ExceptionGroup):  # Hypothesis has seen several errors
                error = error.exceptions[0]
            state = "wrong" if _is_of_suite(error) else "missing"
            text = _first_line(error)
    return Finding(name, state, text, tuple(_first_line(each.message) for each in caught))


def _find_in_new_process(
    probe: Probe, names: Sequence[str], topology: Topology
) -> Iterator[Finding]:
    """Yield the findings of one new process; the last one says how the process ended."""
    receiver, sender = _CONTEXT.Pipe(duplex=False)
    # A daemonic process must not start processes, but a device may be one.
    process = _CONTEXT.Process(target=_send, args=(sender, probe, names, topology))
    with _without_output():
        process.start()
    sender.close()
    try:
        say(f"trying {len(names)} clauses and dtypes on the devices ...")
        try:  # The process sends a first object when it can use the devices.
            is_ready = _poll(receiver, START_LIMIT, "the start of a process")
            is_ready = is_ready and receiver.recv() is None
        except EOFError:
            is_ready = False
        if not is_ready:
            process.kill()
            yield from (try_probe(probe, name, topology) for name in names)
            return
        last = time.monotonic()
        for place, name in enumerate(names):
            if time.monotonic() - last > HEARTBEAT:
                last = time.monotonic()
                say(f"tried {place} of {len(names)} ...")
            try:
                if _poll(receiver, PROBE_LIMIT, name):
                    yield receiver.recv()
                    continue
                text = f"does not return within {PROBE_LIMIT} s"
            except EOFError:
                process.join()
                status = process.exitcode or 0
                how = signal.Signals(-status).name if status < 0 else f"status {status}"
                text = f"ends the process ({how})"
            yield Finding(name, "missing", text)
            return
        process.join(END_LIMIT)
    finally:
        process.kill()
        process.join()


def _send(sender: Connection, probe: Probe, names: Sequence[str], topology: Topology) -> None:
    make_topology(topology.accelerator, ",".join(map(str, topology.ordinals)))
    sender.send(None)
    for name in names:
        sender.send(try_probe(probe, name, topology))


def _poll(receiver: Connection, seconds: int, name: str) -> bool:
    """Return whether an object arrives in some seconds. Print a line for every `HEARTBEAT` s."""
    for passed in range(0, seconds, HEARTBEAT):
        if receiver.poll(min(HEARTBEAT, seconds - passed)):
            return True
        say(f"waiting for {name}: {passed + HEARTBEAT} s")
    return False


def _is_of_suite(error: Exception) -> bool:
    """Return whether an assertion of the suite has failed. PyTorch has assertions, too."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    names = [str(frame.f_globals.get("__name__")) for frame in frames]
    return isinstance(error, AssertionError) and names[-1].startswith("spec_tests.")


def _first_line(error: object) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


@contextmanager
def _without_output() -> Iterator[None]:
    """Discard what this process writes: a back end may print the source of a failing kernel."""
    sys.stdout.flush()
    saved = [os.dup(stream) for stream in _OUTPUTS]
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in _OUTPUTS:
            os.dup2(null, stream)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for stream, copy in zip(_OUTPUTS, saved, strict=True):
            os.dup2(copy, stream)
            os.close(copy)
        os.close(null)
