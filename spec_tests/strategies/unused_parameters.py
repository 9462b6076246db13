"""Modules with parameters that no replica uses, or only some replicas."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.tensors import counting

USES = ("all", "none", "second")


@dataclass(frozen=True)
class LayerUse:
    """The use of one layer.

    Args:
        use: The replicas that use the layer: ``all``, ``none`` or only the ``second``.
        frozen: Whether its weight requires no gradient.
    """

    use: str
    frozen: bool = False


class PartlyUsedLayers(nn.Module):
    """Returns the squared sum of its input and of the outputs of the layers that it uses.

    Weights and inputs are small whole numbers, so that all sums are exact.
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
        """Return the squared sum."""
        total = rows
        for use, layer in zip(self.uses, self.layers, strict=False):
            if use.use == "all" or (use.use == "second" and bool(rows.flatten()[0] > 0)):
                total = total + layer(rows)
        return total.square()


def rows(topology: Topology) -> Tensor:
    """Return four rows. The second of two chunks begins with a positive number."""
    return counting((4, 2), torch.float32, topology.device(0)).requires_grad_()


def layer_uses() -> st.SearchStrategy[tuple[LayerUse, ...]]:
    """Draw the uses of two or three layers. Shrinks to layers that all replicas use."""
    use = st.builds(LayerUse, st.sampled_from(USES), st.booleans())
    return st.lists(use, min_size=2, max_size=3).map(tuple)
