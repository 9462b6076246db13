"""Modules that leave some of their parameters unused: always, or in some replicas."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.tensors import counting

USES = ("all", "none", "second")


@dataclass(frozen=True)
class LayerUse:
    """What becomes of one layer: which replicas use it, and whether it is frozen.

    Args:
        use: ``all`` replicas, ``none``, or the ``second`` one only.
        frozen: Whether its weight requires no gradient.
    """

    use: str
    frozen: bool = False


class PartlyUsedLayers(nn.Module):
    """The squared sum of its input and of those layers that it chooses to use.

    Weights and inputs are small whole numbers, so that all sums are exact.
    """

    def __init__(self, layer_uses: tuple[LayerUse, ...], *, tied: bool) -> None:
        super().__init__()
        self.uses = uses
        weights = [
            nn.Parameter(torch.full((2, 2), index + 1.0), requires_grad=not choice.frozen)
            for index, choice in enumerate(layer_uses)
        ]
        self.layers = nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in layer_uses)
        for layer, weight in zip(self.layers, weights, strict=True):
            layer.register_parameter("weight", weight)
        if tied:
            self.layers.append(self.layers[0])
            self.register_parameter("twin", weights[0])

    def forward(self, rows: Tensor) -> Tensor:
        """The squared sum."""
        total = rows
        for choice, layer in zip(self.choices, self.layers, strict=False):
            if choice.use == "all" or (choice.use == "second" and bool(rows.flatten()[0] > 0)):
                total = total + layer(rows)
        return total.square()


def rows(topology: Topology) -> Tensor:
    """Four rows; those of the second of two chunks begin with a positive number."""
    return counting((4, 2), torch.float32, topology.device(0)).requires_grad_()


def layer_uses() -> st.SearchStrategy[tuple[LayerUse, ...]]:
    """Two or three layers. Shrinks to layers that all replicas use."""
    choice = st.builds(LayerUse, st.sampled_from(USES), st.booleans())
    return st.lists(choice, min_size=2, max_size=3).map(tuple)
