"""Sequences of forwards that run inside ``hold()`` and, for comparison, without it."""

import copy
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

import impl
from spec_tests.harness.environment.topology import Topology


class Scaled(nn.Module):
    """A module that multiplies rows by a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted rows."""
        return x * self.weight


class SharedBuffer(nn.Module):
    """A module that shares the buffer ``total`` with its child. Forward replaces ``last``."""

    total: Tensor
    last: Tensor

    def __init__(self, child: nn.Linear) -> None:
        super().__init__()
        self.child = child
        self.register_buffer("total", torch.zeros(2))
        self.register_buffer("last", torch.zeros(2))
        self.register_buffer("absent", None)
        child.register_buffer("shared", self.total)

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows plus the buffers."""
        y: Tensor = (
            self.child(x) + self.total + 2 * self.child.get_buffer("shared") + 3 * self.last
        )
        self.total += x.sum(0)
        self.last = self.total + 1
        return y


class ConditionallyInPlace(nn.Module):
    """A module that changes its buffers in place if it gets an odd number of rows.

    For an even number of rows, it replaces one buffer.
    """

    buffer: Tensor
    alias: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("buffer", torch.zeros(2))
        self.register_buffer("alias", self.buffer)
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows plus the buffers."""
        if len(x) % 2:
            self.buffer += 1
            self.count += 1
        else:
            self.buffer = self.buffer + 5
        return x + self.alias + self.count


def _make_script_module() -> nn.Module:
    with warnings.catch_warnings():
        # TorchScript is deprecated; callers still use it.
        warnings.simplefilter("ignore")
        module: nn.Module = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    return module


def _make_tied_layers() -> nn.Module:
    layer = nn.Linear(2, 2)
    return nn.Sequential(layer, nn.BatchNorm1d(2), layer)


class InputGradient(nn.Linear):
    """A linear layer that returns a gradient with respect to its input.

    In inference mode, which has no gradients, it returns the output.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the gradient of the sum of squared outputs."""
        if torch.is_inference_mode_enabled():
            return super().forward(x)
        with torch.enable_grad():
            x = x.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(super().forward(x).square().sum(), x)
        return gradient


#: For each name: a function that builds a module.
MODULES: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)),
    "buffers": lambda: SharedBuffer(nn.Linear(2, 2)),
    "conditionally in place": ConditionallyInPlace,
    "input gradient": lambda: InputGradient(2, 2),
    "tied": _make_tied_layers,
    "script": _make_script_module,
    "frozen": lambda: nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2).requires_grad_(False)),
}


def _fill_buffers(module: nn.Module) -> None:
    for buffer in module.buffers():
        buffer.fill_(3)


def _replace_buffers(module: nn.Module) -> None:
    for child in module.modules():
        for name, buffer in list(child._buffers.items()):
            if buffer is not None:
                setattr(child, name, torch.full_like(buffer, 2))


def _replace_buffer_memory(module: nn.Module) -> None:
    for buffer in module.buffers():
        buffer.data = torch.full_like(buffer, 5)


#: For each name: a function that changes the buffers of a module between two forwards.
BUFFER_CHANGES: dict[str, Callable[[nn.Module], None]] = {
    "nothing": lambda _: None,
    "filled": _fill_buffers,
    "replaced": _replace_buffers,
    "new data": _replace_buffer_memory,
}


@dataclass(frozen=True)
class ForwardSequence:
    """A sequence of forwards of one module.

    Args:
        module_name: The name of the module in ``MODULES``.
        training: Whether the module is in training mode.
        steps: For each forward: the number of rows, the name of the change in ``BUFFER_CHANGES``
            before the forward, and whether the forward runs in inference mode.
        devices: The number of devices.
    """

    module_name: str
    training: bool
    steps: Sequence[tuple[int, str, bool]]
    devices: int


_TWO_STEPS = [(4, "nothing", True), (6, "nothing", False)]
#: In the first forward, each chunk has two rows, and the module replaces a buffer. In the second
#: forward, each chunk has three rows, and the module changes its buffers in place.
LATE_CHANGE = ForwardSequence("conditionally in place", False, _TWO_STEPS, 2)
#: The first forward runs in inference mode. In the second forward, the module calls autograd.grad.
LATE_GRADIENTS = ForwardSequence("input gradient", False, _TWO_STEPS, 2)


def forward_sequences() -> st.SearchStrategy[ForwardSequence]:
    """Draw sequences whose chunks have at least two rows, because batch norm needs two."""
    step = st.tuples(
        st.sampled_from([4, 6, 8, 9]), st.sampled_from(list(BUFFER_CHANGES)), st.booleans()
    )
    return st.builds(
        ForwardSequence,
        st.sampled_from(list(MODULES)),
        st.booleans(),
        st.lists(step, min_size=2, max_size=4),
        st.integers(2, 3),
    )


def run_with_and_without_hold(sequence: ForwardSequence, topology: Topology) -> tuple[Any, Any]:
    """Return two results, with and without ``hold()``: the outputs and buffers of each forward."""
    torch.manual_seed(0)
    devices = topology.take(sequence.devices)
    with devices[0]:  # Module.to would make two tensors of a shared buffer.
        module = MODULES[sequence.module_name]().train(sequence.training)
    copied = copy.deepcopy(module)
    inputs = [torch.rand(rows, 2).to(devices[0]) for rows, _, _ in sequence.steps]
    found = []
    for network, held in ((module, True), (copied, False)):
        wrapper = impl.DataParallel(network, devices)
        with wrapper.hold() if held else nullcontext():
            steps = zip(inputs, sequence.steps, strict=True)
            found.append([_step(wrapper, x, step) for x, step in steps])
    return found[0], found[1]


def _step(wrapper: Any, x: Tensor, step: tuple[int, str, bool]) -> Any:
    _, change, inference = step
    with torch.no_grad():
        BUFFER_CHANGES[change](wrapper.module)
        # inference_mode(False) would turn grad mode on.
        with torch.inference_mode() if inference else nullcontext():
            y = wrapper(x)
        buffers = {name: buffer.tolist() for name, buffer in wrapper.module.named_buffers()}
    return y.tolist(), buffers
