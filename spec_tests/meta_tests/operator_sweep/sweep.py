"""Run all sample inputs of one operator in one dtype."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from .database import Case
from .exceptions import Exceptions
from .trial import DEVICE, Comparison, Outcome, compare

__all__ = ["run"]

#: The number of sample inputs of a quick sweep.
_QUICK_SAMPLES = 2


def run(case: Case, exceptions: Exceptions, *, quick: bool) -> list[Outcome]:
    """Run all samples of ``case``, or a few if ``quick`` and the operator is not listed."""
    listed = any(case.operator in error.operators for error in exceptions.errors)
    limit = _QUICK_SAMPLES if quick and not listed else None
    comparison = Comparison(
        values=case.operator not in exceptions.uninitialized,
        same_kernel=case.operator not in exceptions.other_kernels,
    )
    outcomes: list[Outcome] = []
    for function, gradients in _functions(case, quick=quick):
        samples = case.samples(DEVICE, requires_grad=gradients)
        outcomes += _compare_samples(function, samples, comparison, gradients, limit)
    return outcomes


def _functions(case: Case, *, quick: bool) -> Iterator[tuple[Callable[..., Any], bool]]:
    yield case.info.op, case.has_gradients
    if case.info.inplace_variant is not None and not quick:
        yield case.info.inplace_variant, False


def _compare_samples(
    function: Callable[..., Any],
    samples: Iterator[Any],
    comparison: Comparison,
    gradients: bool,
    limit: int | None,
) -> Iterator[Outcome]:
    try:
        for sample in islice(samples, limit):
            outcome = compare(function, sample, comparison, gradients=gradients)
            if outcome.verdict == "unsupported" and gradients:
                outcome = compare(function, sample, comparison, gradients=False)
            yield outcome
    except NotImplementedError as error:  # the device cannot create the inputs
        yield Outcome("unimplemented", str(error).split("\n")[0])
