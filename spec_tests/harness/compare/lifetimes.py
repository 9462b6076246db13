"""Objects that a call keeps alive. The garbage collector is off, so that cycles are detected."""

import weakref
from typing import Any

import pytest
from torch import Tensor, nn

from spec_tests.harness.compare.outcome import Call
from spec_tests.harness.concurrency.leaks import disable_gc
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology
from spec_tests.harness.traverse import leaves, tensors

_References = dict[str, weakref.ref[Any]]


def leaked_objects(call: Call, target: Target, topology: Topology) -> list[str]:
    """Return the paths of arguments and results that are alive after the call.

    Raises:
        Exception: the call raised it.
    """
    with disable_gc():
        return _alive(_references_of_call(call, target, topology))


def objects_leaked_by_error(call: Call, target: Target, topology: Topology) -> list[str]:
    """Return the paths of arguments that are alive after a call that raises."""
    with disable_gc():
        return _alive(_references_of_error(call, target, topology))


def _references_of_call(call: Call, target: Target, topology: Topology) -> _References:
    inputs = call.inputs(topology)
    return references(inputs, "inputs") | references(call.run(target, inputs), "result")


def _references_of_error(call: Call, target: Target, topology: Topology) -> _References:
    inputs = call.inputs(topology)
    watched = references(inputs, "inputs")
    try:
        call.run(target, inputs)
    except Exception:
        return watched
    pytest.fail(f"{call!r} raised no exception")


def _alive(watched: _References) -> list[str]:
    return [path for path, found in watched.items() if found() is not None]


def references(value: object, path: str) -> _References:
    """Return weak references to every tensor, module and object in nested containers."""
    found = {where: leaf for where, leaf in leaves(value, path) if _is_watched(leaf)}
    return {
        where: weakref.ref(leaf) for where, leaf in {**found, **dict(tensors(value, path))}.items()
    }


def _is_watched(leaf: object) -> bool:
    kind = type(leaf)
    ours = isinstance(leaf, (Tensor, nn.Module)) or kind.__module__.startswith("spec_tests")
    return ours and kind.__weakrefoffset__ != 0
