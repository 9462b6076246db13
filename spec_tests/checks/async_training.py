"""A training loop that never waits for the devices."""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

from spec_tests.checks.side_streams import queued_arange
from spec_tests.machine.devices import Topology

#: The number of batches. `train` makes one training step on each batch.
STEPS = 3
#: The values of every batch.
BATCH = torch.arange(1.0, 9.0).reshape(4, 2)
#: Where `batches` allocates a batch: on the first device, or in pageable or pinned host memory.
SOURCES = ("device", "pageable", "pinned")


class Scale(nn.Module):
    """A module that multiplies its input by a parameter and counts its rows in a buffer."""

    rows: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.register_buffer("rows", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """Add the number of rows to the buffer and return the product."""
        self.rows.add_(x.size(0))
        return x * self.scale


def batches(topology: Topology, source: str) -> Iterator[Tensor]:
    """Yield `STEPS` equal batches. The generator keeps no reference to a batch."""
    for _ in range(STEPS):
        if source == "device":
            yield queued_arange(topology, 0, 4, 2)
        else:
            yield BATCH.pin_memory() if source == "pinned" else BATCH.clone()


def train(forward: Callable[[Tensor], Tensor], net: Scale, inputs: Iterable[Tensor]) -> Tensor:
    """Train ``net`` for one step on each batch and return its weights.

    Args:
        forward: ``net`` itself, or a wrapper that calls it.
        net: The module with the weights, which are updated in place.
        inputs: The batches.
    """
    for batch in inputs:
        torch.autograd.backward(forward(batch).sum())
        gradient = net.scale.grad
        assert gradient is not None
        with torch.no_grad():
            net.scale.sub_(gradient / 64)
            gradient.zero_()
        del batch
    return net.scale.detach() * 1
