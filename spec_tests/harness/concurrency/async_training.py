"""A training loop that never waits for the devices."""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

from spec_tests.harness.concurrency.side_streams import queued_arange
from spec_tests.harness.environment.topology import Topology

__all__ = ["BATCH", "SOURCES", "STEPS", "Scale", "batches", "train"]

#: The number of batches.
STEPS = 3
#: The values of every batch.
BATCH = torch.arange(1.0, 9.0).reshape(4, 2)
#: The memory of batches: the first device, or pageable or pinned memory of the host.
SOURCES = ("device", "pageable", "pinned")


class Scale(nn.Module):
    """Multiplies by a parameter. A buffer counts the rows of the first replica."""

    rows: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.register_buffer("rows", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """Count the rows and return the product."""
        self.rows.add_(x.size(0))
        return x * self.scale


def batches(topology: Topology, source: str) -> Iterator[Tensor]:
    """Yield batches without keeping a reference to them."""
    for _ in range(STEPS):
        if source == "device":
            yield queued_arange(topology, 0, 4, 2)
        else:
            yield BATCH.pin_memory() if source == "pinned" else BATCH.clone()


def train(forward: Callable[[Tensor], Tensor], net: Scale, inputs: Iterable[Tensor]) -> Tensor:
    """Take a step for each batch; update the weights in place and return them."""
    for batch in inputs:
        torch.autograd.backward(forward(batch).sum())
        gradient = net.scale.grad
        assert gradient is not None
        with torch.no_grad():
            net.scale.sub_(gradient / 64)
            gradient.zero_()
        del batch
    return net.scale.detach() * 1
