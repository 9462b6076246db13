"""Layers that map rows of `WIDTH` numbers to rows of `WIDTH` numbers.

Each kind of layer has one property that replicas must keep. Examples: a parameter that is None, a
buffer that requires a gradient, a ParameterList, a channels-last weight.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

_Made = TypeVar("_Made")

#: Number of features in each row of the input and of the output of every layer.
WIDTH = 4


def seeded(make: Callable[..., _Made], *args: object) -> _Made:
    """Return ``make(*args)``. Its random numbers, which the CPU draws, are the same in each call.

    Warnings are ignored: some layers and TorchScript are deprecated, but callers still use them.
    """
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(0)
        return make(*args)


class Scaled(nn.Module):
    """A layer that multiplies rows by one parameter, which may have any dtype."""

    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        self.scale = nn.Parameter(scale)

    def forward(self, x: Tensor) -> Tensor:
        """Return the real part of the product in the dtype of the input."""
        product = x * self.scale
        return (product.real if product.is_complex() else product).to(x.dtype)


class NoneEntries(nn.Module):
    """A layer with two parameters, two buffers and two children. One of each pair is None."""

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
        """Return ``child(x * weight + buffer)``."""
        result: Tensor = self.child(x * self.weight + self.buffer)
        return result


class GradBuffer(nn.Module):
    """A layer with two buffers: one requires a gradient, the other does not."""

    with_grad: Tensor
    without_grad: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("with_grad", torch.rand(WIDTH, requires_grad=True))
        self.register_buffer("without_grad", torch.rand(WIDTH), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x * with_grad + without_grad``."""
        return x * self.with_grad + self.without_grad


class Sharing(nn.Module):
    """A layer whose tensors share memory, also after a move to another device."""

    def _share(self) -> None:
        raise NotImplementedError

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Sharing":
        # ``_apply`` of nn.Module makes a separate copy for each name.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._share()
        return self


class SharedBuffer(Sharing):
    """A layer with one buffer that has two names, and a third one in a child."""

    first: Tensor
    second: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.rand(WIDTH))
        self.child = nn.Module()
        self._share()

    def _share(self) -> None:
        self.register_buffer("second", self.first)
        self.child.register_buffer("third", self.first)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input plus the buffer under each name."""
        third: Tensor = self.child.get_buffer("third")
        return x + self.first + self.second + third


class TwoNames(nn.Module):
    """A layer with one parameter that has two names, and a third one in a child."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.second = nn.Parameter(torch.rand(WIDTH))
        self.child = nn.ParameterList([self.first])

    def forward(self, x: Tensor) -> Tensor:
        """Return a result that depends on the parameter under each name."""
        result: Tensor = x * self.first + self.second + self.child[0]
        return result


class OneAddress(Sharing):
    """A layer with two parameters that share memory, and are two objects."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.rand(WIDTH))
        self.second = nn.Parameter(torch.rand(WIDTH))
        self._share()

    def _share(self) -> None:
        self.second.data = self.first.data

    def forward(self, x: Tensor) -> Tensor:
        """Return a result with different gradients of both parameters."""
        return x * self.first + 2 * self.second


class ParameterAsBuffer(Sharing):
    """A layer with a parameter that is also a buffer."""

    buffer: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH))
        self._share()

    def _share(self) -> None:
        self.register_buffer("buffer", self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return a result that depends on the tensor under each name."""
        return x * self.weight + self.buffer


class SparseBuffer(nn.Module):
    """A layer that multiplies rows by a sparse matrix, which is a buffer."""

    matrix: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.eye(WIDTH).to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        """Return the input times the matrix."""
        return x @ self.matrix.to_dense()


class Counter(nn.Module):
    """A layer that updates an integer buffer and a float buffer in place in every forward."""

    calls: Tensor
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Update the buffers and return the input."""
        self.calls += 1
        self.mean.add_(x.detach().sum(0))
        return x


class Branching(nn.Module):
    """A layer that uses its parameter only if the first number of its chunk is positive.

    The outputs of the other replicas require no gradient, unless the input does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x * scale`` or the detached input."""
        return x * self.scale if bool((x.flatten()[:1] > 0).any()) else x.detach().clone()


class Containers(nn.Module):
    """A layer with a container of parameters, one of modules and one of empty containers."""

    def __init__(self, scales: Any, layers: Any, empty: Any) -> None:
        super().__init__()
        self.scales, self.layers, self.empty = scales, layers, empty

    def forward(self, x: Tensor) -> Tensor:
        """Apply every member in order. A missing member would change the output."""
        for index, scale in enumerate(_members(self.scales)):
            x = x * scale + index
        for layer in _members(self.layers):
            x = layer(x)
        return x * (len(self.scales) + len(self.empty))


def _members(container: Any) -> Iterator[Any]:
    is_list = isinstance(container, (nn.ParameterList, nn.ModuleList))
    return iter(container if is_list else container.values())


def _list_containers() -> nn.Module:
    return Containers(
        nn.ParameterList([torch.rand(WIDTH) for _ in range(2)]),
        nn.ModuleList([nn.Tanh(), square_layer()]),
        nn.ModuleList([nn.ParameterList(), nn.ModuleList(), nn.Sequential()]),
    )


def _dict_containers() -> nn.Module:
    return Containers(
        nn.ParameterDict({"b": torch.rand(WIDTH), "a": torch.rand(WIDTH)}),
        nn.ModuleDict({"z": square_layer(), "y": nn.Tanh()}),
        nn.ModuleDict({"x": nn.ParameterDict(), "w": nn.ModuleDict()}),
    )


class Convolution(nn.Module):
    """A convolution whose weight has a memory format."""

    def __init__(self, memory_format: torch.memory_format) -> None:
        super().__init__()
        convolution = nn.Conv2d(2, 2, 3, padding=1)
        self.convolution = convolution.to(memory_format=memory_format)  # type: ignore[call-overload]  # torch's stub lacks the keyword

    def forward(self, x: Tensor) -> Tensor:
        """Reshape each row to two channels of 2 by 1 pixels, convolve, and reshape back."""
        image: Tensor = self.convolution(x.reshape(-1, 2, 2, 1))
        return image.reshape(x.shape)


class Recurrent(nn.Module):
    """A layer that calls a recurrent layer, which also keeps its weights in a list."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def train(self, mode: bool = True) -> Self:
        """Set the mode of this layer. The recurrent layer stays in training, and has no dropout.

        The backward of cuDNN's recurrent layers refuses modules in evaluation mode.
        """
        super().train(mode)
        self.layer.train()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the recurrent layer. Each row is a sequence of length 1."""
        result: Tensor = self.layer(x[:, None, :])[0][:, 0]
        return result


class Residual(nn.Module):
    """A residual layer: the input plus ``inner(input)``."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x + inner(x)``."""
        output: Tensor = self.inner(x)
        return x + output


def square_layer() -> nn.Linear:
    """Return a linear layer with `WIDTH` inputs and outputs."""
    return nn.Linear(WIDTH, WIDTH)


#: For each kind: its constructor, for layers that keep no statistics and compute each output row
#: from one input row. No kind has complex parameters: the reference fails for networks with both
#: real and complex parameters (RE-5, RE-6).
ROW_WISE: Mapping[str, Callable[[], nn.Module]] = {
    "linear": square_layer,
    "tanh": nn.Tanh,
    "linear_without_bias": lambda: nn.Linear(WIDTH, WIDTH, bias=False),
    "layer_norm": lambda: nn.LayerNorm(WIDTH),
    "none_entries": NoneEntries,
    "grad_buffer": GradBuffer,
    "shared_buffer": SharedBuffer,
    "sparse_buffer": SparseBuffer,
    "two_names": TwoNames,
    "one_address": OneAddress,
    "parameter_as_buffer": ParameterAsBuffer,
    "lists": _list_containers,
    "dicts": _dict_containers,
    "scalar": lambda: Scaled(torch.tensor(0.5)),
    "double": lambda: Scaled(torch.rand(WIDTH, dtype=torch.float64)),
    "half": lambda: Scaled(torch.rand(WIDTH).half()),
    "channels_last": lambda: Convolution(torch.channels_last),
    "weight_norm": lambda: parametrizations.weight_norm(square_layer()),
    "orthogonal": lambda: parametrizations.orthogonal(square_layer(), orthogonal_map="cayley"),
    "lstm": lambda: Recurrent(nn.LSTM(WIDTH, WIDTH, batch_first=True)),
    "gru": lambda: Recurrent(nn.GRU(WIDTH, WIDTH, batch_first=True)),
}

#: For each kind: its constructor, for all layers: the layers of `ROW_WISE`, a layer whose output
#: depends on the whole batch, one that uses its parameter in some replicas, and one whose forward
#: changes buffers.
LAYER_KINDS: Mapping[str, Callable[[], nn.Module]] = {
    **ROW_WISE,
    "batch_norm": lambda: nn.BatchNorm1d(WIDTH),
    "branching": Branching,
    "counter": Counter,
}
