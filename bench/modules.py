"""Modules that the benchmarks replicate and run, their devices, and the memory of a call."""

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from spec_tests.machine.devices import Topology

WIDTH = 16
#: The number of replicas on a single device.
_REPLICAS = 4


def replica_devices(topology: Topology) -> list[torch.device]:
    """Return all devices of the run; a single one is used four times."""
    available = len(topology.devices)
    return topology.take(available if available > 1 else _REPLICAS)


def measure_peak_bytes(topology: Topology, call: Callable[[], object]) -> int | None:
    """Return the peak memory during ``call``, summed over the devices.

    Return None if the accelerator does not report its peak memory.
    """
    memory = getattr(torch, topology.accelerator)
    if not hasattr(memory, "reset_peak_memory_stats"):
        return None
    for device in set(topology.devices):
        memory.reset_peak_memory_stats(device)
    call()
    topology.synchronize()
    total: int = sum(memory.max_memory_allocated(device) for device in set(topology.devices))
    return total


def build_blocks(num_blocks: int, width: int = WIDTH) -> nn.Module:
    """Return blocks of Linear, BatchNorm and ReLU; each block has 4 modules and 7 tensors."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(
            nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU())
            for _ in range(num_blocks)
        )
    )


def _small_cnn(norm: type[nn.Module] = nn.Identity) -> tuple[nn.Module, list[Tensor]]:
    """Return a network of three convolutions, and 64 batches of four images."""
    module = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), norm(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), norm(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 32, 3, padding=1), norm(32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    )
    return module, [torch.randn(4, 3, 32, 32) for _ in range(64)]


def _encoder() -> tuple[nn.Module, list[Tensor]]:
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    module = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    return module, [torch.randn(4, 32, 128) for _ in range(64)]


def _mlp() -> tuple[nn.Module, list[Tensor]]:
    module = nn.Sequential(
        *(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    )
    return module, [torch.randn(64, 256) for _ in range(8)]


#: Name -> a function that returns a module, and batches for it.
EFFICIENCY_MODULES: dict[str, Callable[[], tuple[nn.Module, list[Tensor]]]] = {
    "small CNN": _small_cnn,
    "small CNN with batch norm": lambda: _small_cnn(nn.BatchNorm2d),
    "encoder": _encoder,
    "MLP": _mlp,
}


class ScaledSum(nn.Module):
    """A module that adds the tensors in a dict and multiplies the sum by its parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, named: dict[str, Tensor]) -> Tensor:
        """Return the product. It has the shape of one tensor."""
        return torch.stack(list(named.values())).sum(0) * self.weight


class Adapter(nn.Module):
    """A layer norm, and a bottleneck whose output is added to that of the layer norm."""

    def __init__(self, layer: nn.LayerNorm) -> None:
        super().__init__()
        (width,) = layer.normalized_shape
        self.layer, self.down, self.up = layer, nn.Linear(width, 8), nn.Linear(8, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum. It has the shape of ``x``."""
        y: Tensor = self.layer(x)
        added: Tensor = y + self.up(torch.relu(self.down(y)))
        return added


class Delay(nn.Module):
    """A module that waits 4 ms for each row of its input, and twice as long on ``slow_device``."""

    def __init__(self, slow_device: torch.device | None) -> None:
        super().__init__()
        self.slow_device = slow_device

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``."""
        time.sleep(0.004 * len(x) * (2 if x.device == self.slow_device else 1))
        return x


class Identity(nn.Module):
    """A module that returns its input, to measure the overhead of running replicas."""

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``."""
        return x


def build_nested(rows: int, device: torch.device) -> list[dict[str, Tensor]]:
    """Return four dicts, each with four tensors of ``rows`` rows."""
    return [
        {name: torch.ones(rows, 4, device=device) for name in ("a", "b", "c", "d")}
        for _ in range(4)
    ]
