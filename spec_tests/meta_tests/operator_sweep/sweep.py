"""Runs the calls of one operator with one dtype."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from .database import Case
from .exceptions import Exceptions
from .trial import DEVICE, Comparison, Outcome, run_trial

__all__ = ["run_case"]

#: Calls of each operator with ``--quick``.
_QUICK_CALLS = 2


def run_case(case: Case, exceptions: Exceptions, *, quick: bool) -> list[Outcome]:
    """Run the calls of ``case``. With ``quick``, run only a few unless an error is listed."""
    listed = any(case.operator in error.operators for error in exceptions.errors)
    limit = _QUICK_CALLS if quick and not listed else None
    comparison = Comparison(
        values=case.operator not in exceptions.uninitialized,
        same_kernel=case.operator not in exceptions.other_kernels,
    )
    outcomes: list[Outcome] = []
    for function, gradients in _functions(case, quick=quick):
        samples = case.samples(DEVICE, requires_grad=gradients)
        outcomes += _run_samples(function, samples, comparison, gradients, limit)
    return outcomes


def _functions(case: Case, *, quick: bool) -> Iterator[tuple[Callable[..., Any], bool]]:
    yield case.info.op, case.has_gradients
    if case.info.inplace_variant is not None and not quick:
        yield case.info.inplace_variant, False


def _run_samples(
    function: Callable[..., Any],
    samples: Iterator[Any],
    comparison: Comparison,
    gradients: bool,
    limit: int | None,
) -> Iterator[Outcome]:
    try:
        for sample in islice(samples, limit):
            outcome = run_trial(function, sample, comparison, gradients=gradients)
            if outcome.verdict == "unsupported" and gradients:
                outcome = run_trial(function, sample, comparison, gradients=False)
            yield outcome
    except NotImplementedError as error:  # the inputs cannot be created on the device
        yield Outcome("unimplemented", str(error).split("\n")[0])
