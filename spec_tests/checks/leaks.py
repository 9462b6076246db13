"""Checks for threads and objects that a call leaves behind.

`leaked_objects` and `objects_leaked_by_error` run without the garbage collector, so that objects
in reference cycles are found, too.
"""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from torch import Tensor, nn

from spec_tests.checks.comparison import accepted, same
from spec_tests.checks.nested_values import tensors, walk
from spec_tests.checks.outcome import Call
from spec_tests.machine.devices import Topology
from spec_tests.machine.target import Target

#: Seconds after which `wait_until` gives up if the process does nothing, and in any case.
_IDLE_LIMIT, _LIMIT = 2.0, 20.0
#: Processor time, in seconds, that the wait itself may take in `_IDLE_LIMIT`.
_OWN_TIME = 0.2
#: Seconds between two checks of a condition.
_INTERVAL = 0.01
_References = dict[str, weakref.ref[Any]]


def wait_until(condition: Callable[[], bool]) -> bool:
    """Wait until ``condition`` is true; return whether it became true.

    Wait 2 seconds, or up to 20 while other threads compute: on a busy machine they take longer.
    """
    limit = time.monotonic() + _LIMIT
    end, used = time.monotonic() + _IDLE_LIMIT, time.process_time()
    while not condition():
        now = time.monotonic()
        if now > end:
            if now > limit or time.process_time() - used < _OWN_TIME:
                return False
            end, used = now + _IDLE_LIMIT, time.process_time()
        time.sleep(_INTERVAL)
    return True


def silence_thread_errors() -> AbstractContextManager[object]:
    """Return a block in which no traceback is printed for an error that ends another thread."""
    return patch.object(threading, "excepthook", lambda _: None)


@contextmanager
def disable_gc() -> Iterator[None]:
    """Disable the garbage collector inside the block, so that reference cycles are not freed."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def check_freed(references: Sequence[weakref.ref[object]]) -> None:
    """Wait until the objects of ``references`` are freed; fail with the classes of the others."""
    __tracebackhide__ = True
    wait_until(lambda: all(reference() is None for reference in references))
    alive = (reference() for reference in references)
    found = [type(each).__name__ for each in alive if each is not None]
    same(found, [], place="objects kept alive")


def check_none_kept(paths: Sequence[str], call: object) -> None:
    """Fail if the call has kept arguments or results alive, whose paths are given."""
    __tracebackhide__ = True
    same({"objects kept alive": paths}, {"objects kept alive": []}, call)


def leaked_objects(call: Call, target: Target, topology: Topology) -> list[str]:
    """Return the paths of arguments and results that are alive after the call.

    Raises:
        Exception: the error of the call.
    """

    def run() -> _References:
        inputs = call.inputs(topology)
        return references(inputs, "inputs") | references(call.run(target, inputs), "result")

    return _paths_alive(run, topology)


def objects_leaked_by_error(call: Call, target: Target, topology: Topology) -> list[str]:
    """Return the paths of arguments that are alive after a call that raises."""

    def run() -> _References:
        inputs = call.inputs(topology)
        watched = references(inputs, "inputs")
        try:
            call.run(target, inputs)
        except Exception:
            return watched
        raise accepted(call)

    return _paths_alive(run, topology)


def _paths_alive(run: Callable[[], _References], topology: Topology) -> list[str]:
    with disable_gc():
        watched = run()
        topology.synchronize()  # A queued copy may keep its source alive.
        return [path for path, reference in watched.items() if reference() is not None]


def references(value: object, path: str) -> _References:
    """Return weak references to members of ``value``, by path.

    The members are tensors, modules, and objects whose classes the suite defines.
    """
    found = {where: member for where, member in walk(value, path) if _is_tracked(member)}
    found |= dict(tensors(value, path))
    return {where: weakref.ref(member) for where, member in found.items()}


def _is_tracked(value: object) -> bool:
    cls = type(value)
    is_of_suite = cls.__module__.startswith("spec_tests")
    has_weak_references = cls.__weakrefoffset__ != 0
    return has_weak_references and (is_of_suite or isinstance(value, (Tensor, nn.Module)))
