"""Compare the losses, outputs and weights of two training runs of a model."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from .training import Run

__all__ = [
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
_ELEMENT_TOLERANCE = 1e-3


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
    return differences + [
        f"weight {line}" for line in _compare(run.weights, single_device.weights)
    ]


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
    scalars = {path for path, value in expected.items() if value.dim() == 0}
    averaged = {
        path: value.mean(0) if path in scalars and value.dim() == 1 else value
        for path, value in outputs.items()
    }
    return [*_compare(averaged, expected, not_compared)]


def find_bit_differences(run: Run, other: Run) -> list[str]:
    """Compare two runs of a model without a tolerance, where NaN equals NaN.

    Returns:
        One text with all losses, if a loss differs, and one text for each output or weight that
        differs.
    """
    differences = (
        [] if run.losses == other.losses else [f"losses {run.losses}, not {other.losses}"]
    )
    for found, expected in ((run.outputs, other.outputs), (run.weights, other.weights)):
        differences += _compare(found, expected, tolerance=0.0)
    return differences


def _compare(
    actual: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    not_compared: Sequence[str] = (),
    tolerance: float = _ELEMENT_TOLERANCE,
) -> Iterator[str]:
    """Yield a text for each difference. Skip names that begin with a text of ``not_compared``."""
    for name in sorted({*actual, *expected}):
        if name.startswith(tuple(not_compared)):
            continue
        if name not in actual or name not in expected:
            yield f"{name} is in only one run"
        elif actual[name].shape != expected[name].shape:
            shapes = tuple(actual[name].shape), tuple(expected[name].shape)
            yield f"{name} has the shape {shapes[0]}, not {shapes[1]}"
        elif not _is_close(actual[name], expected[name], tolerance):
            yield f"{name} has different elements"


def _is_close(actual: Tensor, expected: Tensor, tolerance: float) -> bool:
    if actual.dtype != expected.dtype:
        return False
    if not expected.is_floating_point():
        return torch.equal(actual, expected)
    finite = expected[expected.isfinite()]
    scale = max(finite.abs().max().item() if finite.numel() else 0.0, 1e-3)
    return torch.allclose(actual, expected, rtol=0, atol=tolerance * scale, equal_nan=True)
