"""Calls during which a simulated device allows only n allocations, for n = 0, 1, ..."""

import itertools
import random
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from spec_tests.harness.environment.target import Target
from spec_tests.simulator import native

from .calls import Call, draw_call
from .contexts import call_in_contexts, draw_contexts
from .draws import draw_function
from .injection import describe, inject
from .verdicts import BAD, Finding, are_equal

__all__ = ["run_out_of_memory"]

#: A part of the text of the simulator's error.
_WORDS = "sim out of memory"
_KIND = "out of memory"


def run_out_of_memory(target: Target, rng: random.Random) -> Iterator[Finding]:
    """Call one function repeatedly. Yield a verdict for each call.

    During the first call the device allows no allocation, and during each further call one more.
    The last call is the first that succeeds or has a bad verdict.
    """
    call = draw_call(target, draw_function(target, rng), rng)
    names, device, is_warm = draw_contexts(rng), rng.choice(call.ordinals), rng.random() < 0.5
    print(f"{call}: no memory on {device}, in {names}", flush=True)
    for allocations in itertools.count():
        run_with_fault = partial(_run, call, device, allocations)
        run = partial(inject, call, run_with_fault, len(call.ordinals), is_warm=is_warm)
        finding = call_in_contexts(names, run)
        yield finding
        if finding.verdict in (*BAD, "not reached"):
            return


def _run(call: Call, device: int, allocations: int, expected: Sequence[Tensor]) -> Finding:
    native.extension().set_fault("no-memory", device, allocations)
    try:
        found = call.compute()
    except BaseException as error:
        is_clear = isinstance(error, torch.OutOfMemoryError) and _WORDS in str(error)
        verdict = "error" if is_clear else "other error"
        return Finding(verdict, _KIND, f"after {allocations} allocations: {describe(error)}")
    finally:
        native.extension().set_fault("", -1)
    # The call succeeded, so it did not need a further allocation.
    return Finding("not reached" if are_equal(found, expected) else "wrong result", _KIND)
