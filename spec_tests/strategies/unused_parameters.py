"""Modules with parameters that not all replicas use."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.tensors import counting

#: The replicas that use a layer: all, none, or only the second replica.
USES = ("all", "none", "second")


@dataclass(frozen=True)
class LayerUse:
    """A description of one layer of `PartlyUsedLayers`.

    Args:
        use: Which replicas use the layer: "all", "none" or "second".
        frozen: Whether the weight of the layer requires no gradient.
    """

    use: str
    frozen: bool = False


class PartlyUsedLayers(nn.Module):
    """A module that returns ``(x + layer(x) + ...).square()`` for the layers that are used.

    Weights and inputs are small whole numbers, so that all sums are exact.

    Args:
        uses: A description of each layer.
        tied: Whether the first layer and its weight are registered twice.
    """

    def __init__(self, uses: tuple[LayerUse, ...], *, tied: bool) -> None:
        super().__init__()
        self.uses = uses
        weights = [
            nn.Parameter(torch.full((2, 2), index + 1.0), requires_grad=not layer.frozen)
            for index, layer in enumerate(uses)
        ]
        self.layers = nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in uses)
        for layer, weight in zip(self.layers, weights, strict=True):
            layer.register_parameter("weight", weight)
        if tied:
            self.layers.append(self.layers[0])
            self.register_parameter("tied", weights[0])

    def forward(self, rows: Tensor) -> Tensor:
        """Return the square of the sum."""
        total = rows
        for use, layer in zip(self.uses, self.layers, strict=False):
            if use.use == "all" or (use.use == "second" and bool(rows.flatten()[0] > 0)):
                total = total + layer(rows)
        return total.square()


def rows(topology: Topology) -> Tensor:
    """Return four rows for two replicas. Only the second chunk begins with a positive number."""
    return counting((4, 2), torch.float32, topology.device(0)).requires_grad_()


def layer_uses() -> st.SearchStrategy[tuple[LayerUse, ...]]:
    """Draw descriptions of two or three layers. Shrinks to layers that all replicas use."""
    use = st.builds(LayerUse, st.sampled_from(USES), st.booleans())
    return st.lists(use, min_size=2, max_size=3).map(tuple)
