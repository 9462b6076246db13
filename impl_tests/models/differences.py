"""Compare the losses, outputs and weights of two training runs of a model."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from .training import Run

__all__ = [
    "ELEMENT_TOLERANCE",
    "LOSS_TOLERANCE",
    "find_bit_differences",
    "find_differences",
    "find_output_differences",
    "relative_error",
]

#: The largest allowed relative difference between the losses on two devices and on one.
#: Two chunks of the batch are summed in float32, and the rounding error grows over three steps.
LOSS_TOLERANCE = 2e-6
#: The largest allowed difference between two elements of outputs or weights, relative to the
#: largest element of their tensor. Elements are not averaged, so they differ more than losses.
ELEMENT_TOLERANCE = 1e-3


def relative_error(loss: float, expected: float) -> float:
    """Return the absolute difference of two losses, divided by the absolute expected loss."""
    return abs(loss - expected) / abs(expected)


def find_differences(run: Run, single_device: Run, not_compared: Sequence[str]) -> list[str]:
    """Compare a run on two devices with a run on one device; describe differences beyond rounding.

    Args:
        run: The run on two devices.
        single_device: The run on one device.
        not_compared: Beginnings of the paths of outputs that are not compared.

    Returns:
        One text for each difference.
    """
    differences = []
    for step, (loss, expected) in enumerate(zip(run.losses, single_device.losses, strict=True)):
        if not relative_error(loss, expected) <= LOSS_TOLERANCE:
            differences.append(f"loss {step} is {loss}, not {expected}")
    differences += find_output_differences(run.outputs, single_device.outputs, not_compared)
    differences += [f"weight {line}" for line in _compare(run.weights, single_device.weights, ())]
    return differences


def find_output_differences(
    outputs: Mapping[str, Tensor], expected: Mapping[str, Tensor], not_compared: Sequence[str]
) -> list[str]:
    """Return a text for each difference beyond rounding between gathered and plain outputs.

    If an output is a scalar in ``expected``, the mean over the replicas is compared.

    Args:
        outputs: Path -> tensor, for the gathered outputs.
        expected: Path -> tensor, for the outputs of the plain module.
        not_compared: Beginnings of the paths of outputs that are not compared.
    """
    return [*_compare(_average_scalars(outputs, expected), expected, not_compared)]


def find_bit_differences(run: Run, other: Run) -> list[str]:
    """Compare two runs of a model without a tolerance; return the differences.

    Losses are equal by ``==``, and tensors by ``torch.equal`` after ``nan_to_num``, so that NaN
    equals NaN.

    Returns:
        One text with all losses, if a loss differs, and one text for each output or weight that
        differs or is in only one run.
    """
    differences = (
        [] if run.losses == other.losses else [f"losses {run.losses}, not {other.losses}"]
    )
    for left, right in ((run.outputs, other.outputs), (run.weights, other.weights)):
        differences += _compare_names(left, right)
        common = [name for name in left if name in right]
        differences += [name for name in common if not _is_equal(left[name], right[name])]
    return differences


def _is_equal(left: Tensor, right: Tensor) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return torch.equal(left.nan_to_num(), right.nan_to_num())


def _average_scalars(
    actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return ``actual``; outputs that ``expected`` has as scalars are averaged over replicas."""
    return {
        path: value.mean(0) if _is_one_scalar_per_replica(value, expected.get(path)) else value
        for path, value in actual.items()
    }


def _is_one_scalar_per_replica(value: Tensor, expected: Tensor | None) -> bool:
    return expected is not None and expected.dim() == 0 and value.dim() == 1


def _compare_names(actual: Collection[str], expected: Collection[str]) -> list[str]:
    return [f"{name} is in only one run" for name in sorted(set(actual) ^ set(expected))]


def _compare(
    actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], not_compared: Sequence[str]
) -> Iterator[str]:
    """Yield a text for each difference. Skip names that begin with a text of ``not_compared``."""
    names = {name for name in {*actual, *expected} if not name.startswith(tuple(not_compared))}
    yield from _compare_names(*({*values} & names for values in (actual, expected)))
    for name in sorted({*actual} & {*expected} & names):
        value, right = actual[name], expected[name]
        if value.shape != right.shape:
            yield f"{name} has the shape {tuple(value.shape)}, not {tuple(right.shape)}"
        elif not _is_close(value, right):
            yield f"{name} has different elements"


def _is_close(actual: Tensor, expected: Tensor) -> bool:
    if not expected.is_floating_point():
        return torch.equal(actual, expected)
    if expected.numel() == 0:
        return True
    finite = expected[expected.isfinite()]
    scale = max(finite.abs().max().item() if finite.numel() else 0.0, 1e-3)
    return torch.allclose(actual, expected, rtol=0, atol=ELEMENT_TOLERANCE * scale, equal_nan=True)
