"""All calls of one operator in one type."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from .database import Case
from .exceptions import Exceptions
from .trial import DEVICE, Comparison, Outcome, attempt

__all__ = ["outcomes"]

_FEW = 2


def outcomes(case: Case, exceptions: Exceptions, *, quick: bool) -> list[Outcome]:
    """Make the calls of ``case``: all, or a few unless it is an exception."""
    listed = any(case.operator in refusal.operators for refusal in exceptions.refusals)
    most = _FEW if quick and not listed else None
    comparison = Comparison(
        numbers=case.operator not in exceptions.uninitialised,
        same_kernel=case.operator not in exceptions.other_kernels,
    )
    found: list[Outcome] = []
    for function, gradients in _functions(case, quick=quick):
        samples = case.samples(DEVICE, requires_grad=gradients)
        found += _attempts(function, samples, comparison, gradients, most)
    return found


def _functions(case: Case, *, quick: bool) -> Iterator[tuple[Callable[..., Any], bool]]:
    yield case.info.op, case.has_gradients
    if case.info.inplace_variant is not None and not quick:
        yield case.info.inplace_variant, False


def _attempts(
    function: Callable[..., Any],
    samples: Iterator[Any],
    comparison: Comparison,
    gradients: bool,
    most: int | None,
) -> Iterator[Outcome]:
    try:
        for sample in islice(samples, most):
            outcome = attempt(function, sample, comparison, gradients=gradients)
            if outcome.verdict == "untried" and gradients:
                outcome = attempt(function, sample, comparison, gradients=False)
            yield outcome
    except NotImplementedError as error:  # the inputs cannot be made on the device
        yield Outcome("refused", str(error).split("\n")[0])
