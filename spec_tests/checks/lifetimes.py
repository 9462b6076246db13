"""Find objects that stay alive after a call.

The garbage collector is off, so that objects in reference cycles are found, too.
"""

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from spec_tests.checks.comparison import accepted
from spec_tests.checks.leaks import disable_gc
from spec_tests.checks.nested_values import tensors, walk
from spec_tests.checks.outcome import Call
from spec_tests.machine.devices import Topology
from spec_tests.machine.target import Target

_References = dict[str, weakref.ref[Any]]


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
