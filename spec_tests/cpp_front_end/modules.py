"""The Python counterparts of the C++ modules of csrc/front_end.cpp.

Both modules of a kind have the same tensors under the same names.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class LayerSequence(nn.Module):
    """A sequence of layers, registered under the name ``body``."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers."""
        result: Tensor = self.body(x)
        return result


class Tied(nn.Module):
    """A linear layer whose weight is also registered in the parent."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.again = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        """Apply the weight twice."""
        return F.linear(torch.tanh(self.first(x)), self.again)


class Scaled(nn.Module):
    """A linear layer whose output is multiplied by a buffer that requires a gradient."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4)
        self.register_buffer("scale", torch.ones(4).requires_grad_())

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer and scale its output."""
        result: Tensor = self.first(x) * self.scale
        return result


def _layers() -> nn.Module:
    return LayerSequence(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5)
    )


#: For each kind of module: a function that builds it, and the shape of one row of its input.
KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: LayerSequence(nn.Linear(6, 4)), (6,)),
    "batch_norm": (lambda: LayerSequence(nn.BatchNorm2d(2)), (2, 4, 4)),
    "layers": (_layers, (2, 4, 4)),
    "tied": (Tied, (6,)),
    "scaled": (Scaled, (6,)),
}


def named_tensors(module: Any) -> dict[str, Tensor]:
    """Return all parameters and buffers by name. A tied parameter is under each of its names."""
    if not isinstance(module, nn.Module):
        return {**module.parameters(), **module.buffers()}
    parameters = module.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(module.named_buffers(remove_duplicate=False))}


def make_module(kind: str, seed: int, device: torch.device) -> nn.Module:
    """Return the Python module of ``kind`` on ``device``, with random weights from ``seed``."""
    build, _ = KINDS[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = build().to(device)
    for child in module.modules():
        for name, buffer in child._buffers.items():
            # `Module.to` replaced a buffer that requires a gradient by a non-leaf copy.
            if buffer is not None and not buffer.is_leaf:
                child._buffers[name] = buffer.detach().requires_grad_()
    return module


def make_cpp_module(front_end: Any, kind: str, seed: int, device: torch.device) -> Any:
    """Return the C++ module of ``kind`` on ``device``, with the weights of the Python module."""
    module = front_end.Model(kind)
    module.to(device)
    weights = named_tensors(make_module(kind, seed, device))
    with torch.no_grad():
        for name, tensor in named_tensors(module).items():
            tensor.copy_(weights[name])
    return module
