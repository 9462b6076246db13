"""A small network and its training on scikit-learn's handwritten digits."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from spec_tests.harness.compare.snapshot import snapshot

#: Number of training steps.
STEPS = 30
#: Rows of a batch. Three and four devices get chunks of unequal size.
ROWS = 50
LEARNING_RATE = 0.05


@dataclass(frozen=True)
class Training:
    """A training run.

    Args:
        device: The device of the network and the batches.
        batch_statistics: Whether batch normalisation uses the statistics of the batch, not
            fixed ones.
    """

    device: torch.device
    batch_statistics: bool = True

    def network(self) -> nn.Module:
        """Return two convolutions with batch normalisation and a linear layer, always the same."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            net = nn.Sequential(*_block(1, 4), nn.MaxPool2d(2), *_block(4, 8), *_head(8 * 4 * 4))
        return net.to(self.device).train(self.batch_statistics)

    def run(self, wrap: Callable[[nn.Module], nn.Module]) -> Any:
        """Train ``wrap(network)``; return the losses, parameters and buffers by name."""
        net = self.network()
        model = wrap(net)
        optimizer = torch.optim.SGD(net.parameters(), LEARNING_RATE, momentum=0.9)
        # Algorithms chosen by timing, and TF32, differ from run to run.
        with torch.backends.cudnn.flags(deterministic=True, benchmark=False, allow_tf32=False):
            losses = [self._step(model, optimizer, step) for step in range(STEPS)]
        return snapshot({"losses": torch.stack(losses), **net.state_dict()}, {})

    def _step(self, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> Tensor:
        images, labels = digits()
        rows = slice(step * ROWS, (step + 1) * ROWS)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(
            model(images[rows].to(self.device)), labels[rows].to(self.device)
        )
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        optimizer.step()
        return loss.detach()


class ChunkByChunk(nn.Module):
    """The network applied to each chunk in turn; only the first chunk changes its buffers."""

    def __init__(self, net: nn.Module, chunks: int) -> None:
        super().__init__()
        self.net = net
        self.chunks = chunks

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs for all chunks."""
        first, *others = x.chunk(self.chunks)
        outputs = [self.net(first)]
        for chunk in others:
            buffers = {name: buffer.clone() for name, buffer in self.net.named_buffers()}
            outputs.append(functional_call(self.net, buffers, (chunk,)))
        return torch.cat(outputs)


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Return all images, with one channel of values up to one, and their labels."""
    # Imported here, because it takes a second, which would slow down collection.
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it has no types

    data = load_digits()
    images = torch.from_numpy(data.images).float().unsqueeze(1) / 16
    return images, torch.from_numpy(data.target)


def _block(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1)
    return convolution, nn.BatchNorm2d(outputs), nn.ReLU()


def _head(features: int) -> tuple[nn.Module, ...]:
    return nn.Flatten(), nn.Linear(features, 10)
