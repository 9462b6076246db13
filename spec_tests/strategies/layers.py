"""Layers that map rows of `WIDTH` numbers to rows of `WIDTH` numbers.

Each kind carries one thing that replication must keep: a None entry, a buffer that requires a
gradient, a container of parameters, a weight with strides of its own, ...
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

#: Features of a row, in and out of every layer.
WIDTH = 4
#: A filter for what cuDNN says of recurrent layers in replicas, whose weights lie apart:
#: https://github.com/allenai/allennlp/issues/2793. Remove when it says so no more.
RNN_WEIGHTS_WARNING = (
    "ignore:RNN module weights are not part of single contiguous chunk:UserWarning"
)


class Scaled(nn.Module):
    """The row times a parameter of any dtype and shape that the row can be multiplied by."""

    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        self.scale = nn.Parameter(scale)

    def forward(self, x: Tensor) -> Tensor:
        """The real part, in the dtype of the row."""
        product = x * self.scale
        return (product.real if product.is_complex() else product).to(x.dtype)


class NoneEntries(nn.Module):
    """A parameter, a buffer and a child that are None, and one of each that is not."""

    buffer: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("no_parameter", None)
        self.weight = nn.Parameter(torch.rand(WIDTH))
        self.register_buffer("no_buffer", None)
        self.register_buffer("buffer", torch.rand(WIDTH))
        self.register_module("no_child", None)
        self.child = nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        """The child of an affine map."""
        result: Tensor = self.child(x * self.weight + self.buffer)
        return result


class GradBuffer(nn.Module):
    """A buffer that requires a gradient beside one that does not."""

    moving: Tensor
    still: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("moving", torch.rand(WIDTH, requires_grad=True))
        self.register_buffer("still", torch.rand(WIDTH), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """An affine map by the two buffers."""
        return x * self.moving + self.still


class SharedBuffer(nn.Module):
    """One buffer under two names."""

    first: Tensor
    second: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.rand(WIDTH))
        self.register_buffer("second", self.first)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SharedBuffer":
        # Moving a module moves each name's buffer by itself.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.second = self.first
        return self

    def forward(self, x: Tensor) -> Tensor:
        """The row moved by twice the buffer."""
        return x + self.first + self.second


class Counter(nn.Module):
    """A whole-number buffer and a float one that forward changes in place."""

    calls: Tensor
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """The row itself."""
        self.calls += 1
        self.mean.add_(x.detach().sum(0))
        return x


class ListContainers(nn.Module):
    """A ParameterList and a ModuleList."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList([torch.rand(WIDTH) for _ in range(2)])
        self.modules_ = nn.ModuleList([nn.Tanh(), nn.Linear(WIDTH, WIDTH)])

    def forward(self, x: Tensor) -> Tensor:
        """Every member in turn; an empty list would change the result."""
        for scale in self.scales:
            x = x + scale
        for module in self.modules_:
            x = module(x)
        return x * len(self.scales)


class DictContainers(nn.Module):
    """A ParameterDict and a ModuleDict."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterDict({"b": torch.rand(WIDTH), "a": torch.rand(WIDTH)})
        self.modules_ = nn.ModuleDict({"z": nn.Linear(WIDTH, WIDTH), "y": nn.Tanh()})

    def forward(self, x: Tensor) -> Tensor:
        """Every member in turn; an empty dictionary would change the result."""
        for name in self.scales:
            x = x * self.scales[name]
        for module in self.modules_.values():
            x = module(x)
        return x * len(self.scales)


class ChannelsLast(nn.Module):
    """A convolution whose weight is stored channels last."""

    def __init__(self) -> None:
        super().__init__()
        convolution = nn.Conv2d(2, 2, 3, padding=1)
        self.convolution = convolution.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks the keyword

    def forward(self, x: Tensor) -> Tensor:
        """The row seen as two channels of a two by one image."""
        image: Tensor = self.convolution(x.reshape(-1, 2, 2, 1))
        return image.reshape(x.shape)


class Recurrent(nn.Module):
    """A recurrent layer: its flattened weights are a second list of its parameters."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """The row seen as a sequence of one step."""
        result: Tensor = self.layer(x[:, None, :])[0][:, 0]
        return result


class Residual(nn.Module):
    """The sum of a row and what ``inner`` makes of it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        around: Tensor = self.inner(x)
        return x + around


def square_layer() -> nn.Linear:
    """As many outputs as inputs, so that it fits anywhere."""
    return nn.Linear(WIDTH, WIDTH)


#: Kinds whose result for a row does not depend on the other rows, and that keep no statistics.
#: None is complex: beside others such a parameter fails in the reference (RE-5, RE-6).
ROW_WISE: Mapping[str, Callable[[], nn.Module]] = {
    "linear": square_layer,
    "tanh": nn.Tanh,
    "linear_without_bias": lambda: nn.Linear(WIDTH, WIDTH, bias=False),
    "layer_norm": lambda: nn.LayerNorm(WIDTH),
    "none_entries": NoneEntries,
    "grad_buffer": GradBuffer,
    "shared_buffer": SharedBuffer,
    "lists": ListContainers,
    "dicts": DictContainers,
    "scalar": lambda: Scaled(torch.tensor(0.5)),
    "double": lambda: Scaled(torch.rand(WIDTH, dtype=torch.float64)),
    "half": lambda: Scaled(torch.rand(WIDTH).half()),
    "channels_last": ChannelsLast,
    "weight_norm": lambda: parametrizations.weight_norm(square_layer()),
    "orthogonal": lambda: parametrizations.orthogonal(square_layer(), orthogonal_map="cayley"),
    "lstm": lambda: Recurrent(nn.LSTM(WIDTH, WIDTH, batch_first=True)),
    "gru": lambda: Recurrent(nn.GRU(WIDTH, WIDTH, batch_first=True)),
}

#: All kinds: also those that look at the whole batch, or whose buffers forward changes.
KINDS: Mapping[str, Callable[[], nn.Module]] = {
    **ROW_WISE,
    "batch_norm": lambda: nn.BatchNorm1d(WIDTH),
    "counter": Counter,
}
