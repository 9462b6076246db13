"""The record of a training run, which another process can read."""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import torch
from torch import nn

__all__ = ["Record", "record"]


class Record(TypedDict):
    """The results of a training run.

    Attributes:
        losses: The loss of each step, and other numbers that the package computed.
        weights: The elements of each entry of the model's state.
        wrapper_module: The name of the Python module that defines the DataParallel of the run.
    """

    losses: list[float]
    weights: dict[str, list[float]]
    wrapper_module: str


def record(losses: Sequence[float], model: nn.Module, wrapper: Callable[..., Any]) -> Record:
    """Return the record of a run.

    Args:
        losses: As in the record.
        model: The trained model.
        wrapper: The DataParallel class of the run, its subclass, or ``data_parallel``.
    """
    state = {name: value for name, value in model.state_dict().items() if torch.is_tensor(value)}
    weights = {name: value.detach().cpu().double().flatten() for name, value in state.items()}
    return Record(
        losses=[float(loss) for loss in losses],
        weights={name: value.tolist() for name, value in weights.items()},
        wrapper_module=_defining_module(wrapper),
    )


def _defining_module(wrapper: Callable[..., Any]) -> str:
    if not isinstance(wrapper, type):
        return wrapper.__module__
    bases = [base for base in wrapper.__mro__ if base.__name__ == "DataParallel"]
    return bases[-1].__module__
