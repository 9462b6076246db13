"""What two runs of a model have in common."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from .steps import Run

__all__ = ["LOSSES", "deviation", "differences", "unequal"]

#: Of losses from those of one device, relative: the batch is summed in two parts, in float32,
#: and what that rounds otherwise goes through three steps.
LOSSES = 2e-6
#: Of an element of outputs or weights, relative to the largest of its tensor: the same roundings
#: where nothing is averaged.
ELEMENTS = 1e-3


def deviation(loss: float, expected: float) -> float:
    """Give the difference of two losses, relative to the second."""
    return abs(loss - expected) / abs(expected)


def differences(run: Run, plain: Run, apart: Sequence[str]) -> list[str]:
    """Say where a run on parts of the batch differs from one on the whole, beyond rounding.

    Args:
        run: With several devices. Where one device has one number, this may have one for each,
            which are averaged.
        plain: With one.
        apart: Beginnings of outputs that are not compared.
    """
    found = []
    for step, (loss, expected) in enumerate(zip(run.losses, plain.losses, strict=True)):
        if not deviation(loss, expected) <= LOSSES:
            found.append(f"loss {step} is {loss}, not {expected}")
    found += _differing(_averaged(run.outputs, plain.outputs), plain.outputs, apart)
    found += [f"weight {line}" for line in _differing(run.weights, plain.weights, ())]
    return found


def unequal(run: Run, other: Run) -> list[str]:
    """Say where two runs differ in any bit."""
    found = [] if run.losses == other.losses else [f"losses {run.losses}, not {other.losses}"]
    for mine, its in ((run.outputs, other.outputs), (run.weights, other.weights)):
        found += _different_names(mine, its)
        found += [name for name in mine if name in its and not _is_same(mine[name], its[name])]
    return found


def _is_same(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one.nan_to_num(), other.nan_to_num())


def _averaged(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        place: value.mean(0) if _is_number_of_replicas(value, expected.get(place)) else value
        for place, value in found.items()
    }


def _is_number_of_replicas(value: Tensor, expected: Tensor | None) -> bool:
    return expected is not None and expected.dim() == 0 and value.shape == (2,)


def _different_names(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    return [f"{name} is in one of both" for name in sorted(set(found) ^ set(expected))]


def _differing(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], apart: Sequence[str]
) -> Iterator[str]:
    compared = [
        {name: value for name, value in each.items() if not name.startswith(tuple(apart))}
        for each in (found, expected)
    ]
    yield from _different_names(*compared)
    for name in sorted(set(compared[0]) & set(compared[1])):
        one, other = (each[name] for each in compared)
        if one.shape != other.shape:
            yield f"{name} is {tuple(one.shape)}, not {tuple(other.shape)}"
        elif not _is_close(one, other):
            yield f"{name} has other elements"


def _is_close(one: Tensor, other: Tensor) -> bool:
    if not other.is_floating_point():
        return torch.equal(one, other)
    if other.numel() == 0:
        return True
    scale = other[other.isfinite()].abs().max().item() if other.isfinite().any() else 0.0
    return torch.allclose(one, other, rtol=0, atol=ELEMENTS * max(scale, 1e-3), equal_nan=True)
