"""The random choices that all kinds of faults need: a public function, a call of it, devices.

The strategies of the suite describe the calls.
"""

import gc
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from spec_tests.harness.environment.target import Target
from spec_tests.strategies import (
    coalesced,
    comm,
    data_parallel,
    functions,
    gather,
    parallel_apply,
    replicate,
    scatter_gather,
)
from spec_tests.strategies.data_parallel import DataParallelCall
from spec_tests.strategies.modules import Layer, flatten

from .trigger import BACKWARD_PLACES, CONTAINER_PLACES, FORWARD_PLACES, REPLICATE_PLACES

__all__ = ["MODULE_CALLS", "TRANSFERS", "draw", "draw_function", "places_of"]

T = TypeVar("T")
#: Kinds of layers. A recurrent layer replaces its lists of weights in forward. Parametrized layers
#: set grad mode and pickle their classes in code that an interrupt may leave in a wrong state.
_KINDS = tuple(
    kind
    for kind in data_parallel.PRECISE
    if kind not in ("lstm", "gru", "weight_norm", "orthogonal")
)
#: The number of examples that Hypothesis draws for a call. The first ones are small.
_EXAMPLES = 5


def _data_parallel_calls(**fields: object) -> st.SearchStrategy[DataParallelCall]:
    """Draw calls of networks, and calls with nested arguments, in grad mode."""
    calls = data_parallel.network_calls(kinds=_KINDS, grads=(True,)) | data_parallel.nested_calls()
    return calls.map(lambda call: replace(call, **fields))  # type: ignore[arg-type]


def _has_known_kinds(call: parallel_apply.ParallelApplyCall) -> bool:
    layers = (layer for module in call.modules for layer in flatten(module.parts))
    return all(layer.kind in _KINDS for layer in layers if isinstance(layer, Layer))


#: Name of a public function that runs modules -> a strategy of its calls.
MODULE_CALLS: Mapping[str, st.SearchStrategy[Any]] = {
    "DataParallel": _data_parallel_calls(functional=False),
    "data_parallel": _data_parallel_calls(functional=True),
    "DataParallel.hold": _data_parallel_calls(functional=False),
    "parallel_apply": parallel_apply.parallel_apply_calls().filter(_has_known_kinds),
    "replicate": replicate.replicate_calls(kinds=_KINDS),
}
#: Name of a public function that copies tensors between devices -> a strategy of its calls.
TRANSFERS: Mapping[str, st.SearchStrategy[Any]] = {
    "scatter": scatter_gather.scatter_calls(),
    "scatter_kwargs": scatter_gather.scatter_kwargs_calls(),
    "gather": gather.gather_calls(kinds=scatter_gather.SPLIT),
    "comm.broadcast": comm.broadcast_calls(),
    "comm.broadcast_coalesced": coalesced.broadcast_coalesced_calls(),
    "comm.reduce_add": coalesced.reduce_add_calls(),
    "comm.reduce_add_coalesced": coalesced.reduce_add_coalesced_calls(),
    "comm.scatter": comm.scatter_calls(),
    "comm.gather": comm.gather_calls(),
    "functions.Scatter": functions.scatter_applies(),
    "functions.Gather": functions.gather_applies(),
    "functions.Broadcast": functions.broadcast_applies(),
    "functions.ReduceAddCoalesced": functions.reduce_applies(),
}
#: The places in the backward of functions that copy tensors.
_GRAPH_PLACES = ("backward", "hook of a gradient")
_ALL_PLACES = (*FORWARD_PLACES, *BACKWARD_PLACES, *REPLICATE_PLACES, *CONTAINER_PLACES)
#: Name of a public function -> the places at which its calls may raise the injected exception.
_PLACES = {
    "DataParallel": _ALL_PLACES,
    "data_parallel": _ALL_PLACES,
    "DataParallel.hold": (*FORWARD_PLACES, *REPLICATE_PLACES, *CONTAINER_PLACES),
    "parallel_apply": (*FORWARD_PLACES, *BACKWARD_PLACES, "iterator"),
    "replicate": (*FORWARD_PLACES, *BACKWARD_PLACES, *REPLICATE_PLACES, "iterator"),
    "scatter": (*_GRAPH_PLACES, *CONTAINER_PLACES),
    "scatter_kwargs": (*_GRAPH_PLACES, *CONTAINER_PLACES),
    "gather": (*_GRAPH_PLACES, *CONTAINER_PLACES),
    "functions.Scatter": (*_GRAPH_PLACES, "iterator"),
    "functions.Broadcast": (*_GRAPH_PLACES, "iterator"),
    "functions.Gather": _GRAPH_PLACES,
    "functions.ReduceAddCoalesced": _GRAPH_PLACES,
}


def places_of(name: str) -> tuple[str, ...]:
    """Return the places at which calls of a public function may raise the injected exception."""
    return _PLACES.get(name, ("iterator",))


def draw_function(target: Target, rng: random.Random) -> str:
    """Return the name of a random public function; more often one that runs modules."""
    names = [*(MODULE_CALLS if rng.random() < 0.6 else TRANSFERS)]
    if not hasattr(target.data_parallel.DataParallel, "hold"):
        names = [name for name in names if name != "DataParallel.hold"]
    return rng.choice(names)


def draw(strategy: st.SearchStrategy[T], rng: random.Random) -> T:
    """Return a random example of a strategy. It depends on the state of ``rng`` only."""
    examples: list[T] = []
    callbacks = [*gc.callbacks]

    @seed(rng.randrange(2**32))
    @settings(
        max_examples=_EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: T) -> None:
        examples.append(example)

    collect()
    # Hypothesis measures garbage collections. Python ignores an interrupt in the callback.
    gc.callbacks[:] = callbacks
    return rng.choice(examples)
