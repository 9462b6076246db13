"""A model to train, with its inputs and its loss."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "NO_PARAMETERS_REASON",
    "ROWS",
    "SHARED_HOOKS_REASON",
    "Model",
    "draw_images",
    "mean_loss",
    "squared_error",
]

#: The number of rows of a batch: two for each device.
ROWS = 4
#: Why torch.nn.parallel fails on several models.
SHARED_HOOKS_REASON = (
    "replicas share the hooks of transformers that collect outputs, so they collect each other's"
)
#: Why torch.nn.parallel fails on other models.
NO_PARAMETERS_REASON = "the model reads its first parameter, but replicas have no parameters"


def mean_loss(output: Any) -> Tensor:
    """Return the mean of the losses that the replicas or the plain module returned."""
    loss: Tensor = output["loss"].mean()
    return loss


def squared_error(output: Tensor) -> Tensor:
    """Return the mean squared difference between ``output`` and 1."""
    return (output - 1).square().mean()


def draw_images(rows: int, size: int = 16) -> Tensor:
    """Draw square images of ``size`` pixels with three channels."""
    return torch.randn(rows, 3, size, size)


@dataclass(frozen=True)
class Model:
    """A model to train.

    Args:
        name: The name in tests and in the published table.
        package: The name of the package on PyPI.
        covers: What this model covers that the other models do not.
        build: A function that returns the model, with weights from torch's global random state.
        inputs: A function that draws a batch with the given number of rows, as keyword arguments
            or positional arguments.
        loss: A function that computes the loss from the outputs.
        not_compared: Beginnings of the paths of outputs that differ if the batch is split.
        reference: Why torch.nn.parallel does not train the model correctly; empty if it does.
    """

    name: str
    package: str
    covers: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Mapping[str, Any] | tuple[Any, ...]]
    loss: Callable[[Any], Tensor] = mean_loss
    not_compared: tuple[str, ...] = ()
    reference: str = ""

    @property
    def has_race(self) -> bool:
        """Whether torch.nn.parallel is wrong only if its replicas run at the same time."""
        return self.reference == SHARED_HOOKS_REASON
