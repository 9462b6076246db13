"""A backend for torch.compile that runs captured graphs without a compiler."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class CountingBackend:
    """A backend that runs captured graphs eagerly and appends each graph's device to a list.

    The device is that of the first tensor that the graph takes.
    """

    def __init__(self) -> None:
        self.devices: list[torch.device] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Return a function that runs ``graph``."""
        tensors = [value for value in inputs if isinstance(value, Tensor)]
        self.devices += [tensor.device for tensor in tensors[:1]]
        return graph.forward
