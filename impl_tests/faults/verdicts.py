"""The verdicts on faults, and comparisons of results."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["BAD", "VERDICTS", "Finding", "are_equal", "have_same_elements"]

#: Verdict -> its meaning. A verdict in ``BAD`` makes the run fail.
VERDICTS = {
    "not reached": "the place was not reached, or the call ended before the interrupt",
    "right": "the call returned the right result",
    "error": "the call raised the error that reports this fault",
    "other error": "the call raised another error, or an error that does not report the fault",
    "lost": "the fault occurred, and the call returned as if it had not",
    "wrong result": "this call or the next one returned a wrong result, or the next one failed",
    "state left": "after the call a setting, a module or the memory differs, or a thread runs",
    "hang": "the call, or the next one, did not end in time",
    "crash": "the process died",
}
#: The verdicts that make the run fail: all from "other error" on.
BAD = tuple(VERDICTS)[3:]
#: The largest relative and absolute difference of two numbers that count as equal, and that in
#: autocast to float16, where the sum of several gradients of a parameter is rounded in any order.
_TOLERANCE, _AUTOCAST_TOLERANCE = 1e-3, 1e-2


class Finding(NamedTuple):
    """The verdict on one fault: one of ``VERDICTS``, the fault's kind, and what was observed."""

    verdict: str
    kind: str
    detail: str = ""


def are_equal(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Return whether two sequences contain equal tensors in the same order.

    Numbers may differ by rounding: implementations may add gradients in another order.
    """
    return len(found) == len(expected) and all(map(_is_close, found, expected))


def have_same_elements(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Return whether two lists of tensors have the same elements, in any order and shapes."""
    return _is_close(*(_sorted_elements(tensors) for tensors in (found, expected)))


def _is_close(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    tolerance = _AUTOCAST_TOLERANCE if torch.is_autocast_enabled("sim") else _TOLERANCE
    return torch.allclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def _sorted_elements(tensors: Sequence[Tensor]) -> Tensor:
    reals = (torch.view_as_real(each) if each.is_complex() else each for each in tensors)
    return torch.cat([torch.empty(0), *(each.flatten().double() for each in reals)]).sort().values
