"""The contexts of a trial's call: modes, devices, streams, and an ``except`` clause."""

import random
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

import torch

from spec_tests.harness.concurrency.leaks import disable_gc

from .state import LocalState

__all__ = ["CONTEXTS", "WITHOUT_GRAD", "call_in_contexts", "draw_contexts"]

T = TypeVar("T")


#: Name of a context -> a function that returns a context manager.
CONTEXTS: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("sim", dtype=torch.float16),
    "device 1": lambda: torch.accelerator.device_index(1),
    "stream of device 2": lambda: torch.Stream(device="sim:2"),
    "collector off": disable_gc,
    "default device": lambda: torch.device("cpu"),
}
#: The contexts in which autograd records no graph.
WITHOUT_GRAD = ("no_grad", "inference_mode")
#: A context that is no context manager: the call is made in an ``except`` clause.
_HANDLER = "except clause"


def draw_contexts(rng: random.Random) -> tuple[str, ...]:
    """Return the names of up to three contexts; often none."""
    names = [*CONTEXTS, _HANDLER]
    return tuple(rng.sample(names, rng.choice([0, 0, 0, 1, 1, 2, 3])))


def call_in_contexts(names: tuple[str, ...], function: Callable[[], T]) -> T:
    """Return ``function()``, called in the named contexts."""
    LocalState.set(f"set by {names}")
    contexts = ExitStack()
    try:
        for name in names:
            if name != _HANDLER:
                contexts.enter_context(CONTEXTS[name]())
        if _HANDLER not in names:
            return function()
        try:
            raise LookupError("the exception that the caller handles")
        except LookupError:
            return function()
    finally:
        # Leaving a context may raise an error if the call has changed the state. The verdict
        # reports such a change.
        with suppress(RuntimeError):
            contexts.close()
