"""A model to train, with its inputs and its loss."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "HOOKS",
    "NO_PARAMETERS",
    "ROWS",
    "Model",
    "draw_images",
    "mean_loss",
    "squared_error",
]

#: The rows of a batch: two for each device.
ROWS = 4
#: Errors of several models, on torch.nn.parallel or on both libraries.
HOOKS = (
    "replicas share the hooks of transformers that collect outputs, so they collect each other's"
)
NO_PARAMETERS = "the model reads its first parameter, but replicas have no parameters"


def mean_loss(output: Any) -> Tensor:
    """Return the mean of the losses that the replicas, or the plain module, computed."""
    loss: Tensor = output["loss"].mean()
    return loss


def squared_error(output: Tensor) -> Tensor:
    """Return the mean squared difference of ``output`` from 1."""
    return (output - 1).square().mean()


def draw_images(rows: int, size: int = 16) -> Tensor:
    """Draw square images with three channels."""
    return torch.randn(rows, 3, size, size)


@dataclass(frozen=True)
class Model:
    """One architecture.

    Args:
        name: The name in tests and in the published table.
        package: The package, as the package index names it.
        chosen_for: The properties that other models lack.
        build: Builds the model, with weights from torch's global random state.
        inputs: Draws a batch of that many rows: keyword arguments, or positional arguments.
        loss: Computes the loss from the outputs.
        not_compared: Path prefixes of outputs that differ if the batch is split.
        reference: The error of torch.nn.parallel on the model, if any.
        impl: The error of impl on the model, if any.
    """

    name: str
    package: str
    chosen_for: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Mapping[str, Any] | tuple[Any, ...]]
    loss: Callable[[Any], Tensor] = mean_loss
    not_compared: tuple[str, ...] = ()
    reference: str = ""
    impl: str = ""

    @property
    def has_race(self) -> bool:
        """True if the reference is wrong only when its replicas run at the same time."""
        return self.reference == HOOKS
