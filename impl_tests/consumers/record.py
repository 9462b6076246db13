"""The results of a training run as data that can be written as JSON."""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor, nn


class Record(TypedDict):
    """The results of a training run.

    Attributes:
        losses: The loss of each step, and other numbers that the package computed.
        weights: Name in the model's state dict -> all elements of the tensor.
        wrapper_module: The Python module that defines the DataParallel that the run used.
    """

    losses: list[float]
    weights: dict[str, list[float]]
    wrapper_module: str


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> float:
    """Update the optimizer's parameters by the gradients of ``loss``; return the loss."""
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()
    return loss.item()


def make_record(losses: Sequence[float], model: nn.Module, wrapper: Callable[..., Any]) -> Record:
    """Return the results of a run.

    Args:
        losses: The loss of each step, and other numbers that the package computed.
        model: The trained model.
        wrapper: The DataParallel class or subclass that wrapped the model, or ``data_parallel``.
    """
    bases = [each for each in getattr(wrapper, "__mro__", ()) if each.__name__ == "DataParallel"]
    return Record(
        losses=[float(loss) for loss in losses],
        weights={
            name: value.detach().cpu().double().flatten().tolist()
            for name, value in model.state_dict().items()
            if torch.is_tensor(value)
        },
        wrapper_module=(bases[-1] if bases else wrapper).__module__,
    )
