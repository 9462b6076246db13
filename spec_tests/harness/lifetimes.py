"""What a call keeps alive, seen with the garbage collector off: a reference cycle shows."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from spec_tests.harness.outcome import Call
from spec_tests.harness.portrait import leaves, tensors
from spec_tests.harness.target import Target
from spec_tests.harness.topology import Topology


def left_over(call: Call, target: Target, topology: Topology) -> list[str]:
    """The paths of arguments and results that outlive the call and all its values.

    A call that fails is treated alike: its error is dropped.
    """
    with reference_counting():
        watched = _watch(call, target, topology)
        return [path for path, found in watched.items() if found() is not None]


@contextmanager
def reference_counting() -> Iterator[None]:
    """Leave it to reference counts alone to free what is no longer used."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _watch(call: Call, target: Target, topology: Topology) -> dict[str, weakref.ref[Any]]:
    inputs = call.inputs(topology)
    watched = references(inputs, "inputs")
    try:
        watched |= references(call.run(target, inputs), "result")
    except Exception:
        watched |= {}
    return watched


def references(value: object, path: str) -> dict[str, weakref.ref[Any]]:
    """Weak references to every tensor, module and object in nested containers."""
    found = {where: leaf for where, leaf in leaves(value, path) if _is_watched(leaf)}
    return {
        where: weakref.ref(leaf) for where, leaf in {**found, **dict(tensors(value, path))}.items()
    }


def _is_watched(leaf: object) -> bool:
    kind = type(leaf)
    ours = isinstance(leaf, (Tensor, nn.Module)) or kind.__module__.startswith("spec_tests")
    return ours and kind.__weakrefoffset__ != 0
