"""What a training run leaves behind, in a form that another process can read."""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import torch
from torch import nn

__all__ = ["Record", "record"]


class Record(TypedDict):
    """The end of a training run.

    Attributes:
        losses: One for each step, and what the package has computed of the trained model.
        weights: Each entry of the model's state: its elements, one after the other.
        home: The module whose DataParallel computed it.
    """

    losses: list[float]
    weights: dict[str, list[float]]
    home: str


def record(losses: Sequence[float], model: nn.Module, wrapper: Callable[..., Any]) -> Record:
    """Record the end of a run.

    Args:
        losses: As in the record.
        model: What was trained.
        wrapper: The DataParallel that did it, its subclass, or ``data_parallel``.
    """
    state = {name: value for name, value in model.state_dict().items() if torch.is_tensor(value)}
    weights = {name: value.detach().cpu().double().flatten() for name, value in state.items()}
    return Record(
        losses=[float(loss) for loss in losses],
        weights={name: value.tolist() for name, value in weights.items()},
        home=_home(wrapper),
    )


def _home(wrapper: Callable[..., Any]) -> str:
    if not isinstance(wrapper, type):
        return wrapper.__module__
    named = [each for each in wrapper.__mro__ if each.__name__ == "DataParallel"]
    return named[-1].__module__
