"""A small network and its training on scikit-learn's handwritten digits."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.strategies.computed_modules import computed

#: Number of training steps.
STEPS = 15
#: Rows of a batch. With three or four devices the chunks have unequal sizes.
ROWS = 50
LEARNING_RATE = 0.05


@dataclass(frozen=True)
class Training:
    """A training run.

    Args:
        device: The device of the network and the batches.
        batch_statistics: Whether batch normalisation is in training mode and uses the statistics
            of the batch. Otherwise it uses fixed statistics.
    """

    device: torch.device
    batch_statistics: bool = True

    def build_network(self) -> nn.Module:
        """Return two convolutions with batch normalisation and a linear layer, always equal."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            net = nn.Sequential(
                *_make_block(1, 4), nn.MaxPool2d(2), *_make_block(4, 8), *_make_head(8 * 4 * 4)
            )
        return net.to(self.device).train(self.batch_statistics)

    def run(self, wrap: Callable[[nn.Module], nn.Module]) -> Any:
        """Train ``wrap(network)``. Return a snapshot of losses, parameters and buffers by name.

        The test is not-run if the devices do not compute the layers as the CPU does.
        """
        for layer in ("convolution", "batch_norm"):
            computed([layer])
        net = self.build_network()
        model = wrap(net)
        optimizer = torch.optim.SGD(net.parameters(), LEARNING_RATE, momentum=0.9)
        # Algorithms that cuDNN chooses by timing differ between runs; TF32 rounds too coarsely.
        with torch.backends.cudnn.flags(deterministic=True, benchmark=False, allow_tf32=False):
            losses = [self._step(model, optimizer, step) for step in range(STEPS)]
        return snapshot({"losses": torch.stack(losses), **net.state_dict()}, {})

    def _step(self, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> Tensor:
        images, labels = load_images()
        rows = slice(step * ROWS, (step + 1) * ROWS)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(
            model(images[rows].to(self.device)), labels[rows].to(self.device)
        )
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        optimizer.step()
        return loss.detach()


class ChunkByChunk(nn.Module):
    """A module that applies ``net`` to chunk after chunk. Only the first chunk changes buffers."""

    def __init__(self, net: nn.Module, chunk_count: int) -> None:
        super().__init__()
        self.net = net
        self.chunk_count = chunk_count

    def forward(self, x: Tensor) -> Tensor:
        """Return the concatenated outputs of all chunks."""
        first, *others = x.chunk(self.chunk_count)
        outputs = [self.net(first)]
        for chunk in others:
            buffers = {name: buffer.clone() for name, buffer in self.net.named_buffers()}
            outputs.append(functional_call(self.net, buffers, (chunk,)))
        return torch.cat(outputs)


@cache
def load_images() -> tuple[Tensor, Tensor]:
    """Return all images and their labels. Images have one channel and values from 0 to 1."""
    # Imported here: the import takes a second and would slow down the collection of tests.
    # The import adds filters of warnings.
    with warnings.catch_warnings():
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # it has no types

    data = load_digits()
    images = torch.from_numpy(data.images).float().unsqueeze(1) / 16
    return images, torch.from_numpy(data.target)


def _make_block(in_channels: int, out_channels: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(in_channels, out_channels, 3, padding=1)
    return convolution, nn.BatchNorm2d(out_channels), nn.ReLU()


def _make_head(features: int) -> tuple[nn.Module, ...]:
    return nn.Flatten(), nn.Linear(features, 10)
