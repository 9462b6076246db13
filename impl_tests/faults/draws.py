"""The random choices that all kinds of faults need: a public function and devices."""

import random

from .calls import MODULE_CALLS
from .target import Target
from .transfers import TRANSFER_CALLS
from .trigger import BACKWARD_PLACES, CONTAINER_PLACES, FORWARD_PLACES, REPLICATE_PLACES

__all__ = ["CALLS", "draw_call", "draw_ordinals", "places_of"]

#: All public functions, by name.
CALLS = {**MODULE_CALLS, **TRANSFER_CALLS}
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


def draw_call(target: Target, rng: random.Random) -> str:
    """Return the name of a random public function; more often one that runs modules."""
    names = [*(MODULE_CALLS if rng.random() < 0.6 else TRANSFER_CALLS)]
    if not hasattr(target.data_parallel.DataParallel, "hold"):
        names = [name for name in names if name != "DataParallel.hold"]
    return rng.choice(names)


def draw_ordinals(rng: random.Random) -> tuple[int, ...]:
    """Return one to four random ordinals of devices. Sometimes they are not distinct."""
    if rng.random() < 0.2:
        return tuple(rng.choices(range(4), k=rng.randint(2, 4)))
    return tuple(rng.sample(range(4), rng.choice([1, 2, 2, 3, 4])))
