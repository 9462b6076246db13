"""Sequences of forwards, with held replicas and with new ones."""

import copy
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from spec_tests.harness.environment.target import Target
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
    """A module with a buffer that it shares with its child, and a buffer that forward replaces."""

    total: Tensor
    last: Tensor

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("total", torch.zeros(2))
        self.register_buffer("last", torch.zeros(2))
        self.register_buffer("absent", None)
        inner.register_buffer("shared", self.total)

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows plus the buffers."""
        y: Tensor = (
            self.inner(x) + self.total + 2 * self.inner.get_buffer("shared") + 3 * self.last
        )
        self.total += x.sum(0)
        self.last = self.total + 1
        return y


class ConditionallyInPlace(nn.Module):
    """A module that changes a buffer with two names in place, but only for odd chunks."""

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


def _scripted() -> nn.Module:
    with warnings.catch_warnings():
        # TorchScript is deprecated; callers still use it.
        warnings.simplefilter("ignore")
        module: nn.Module = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    return module


def _tied() -> nn.Module:
    layer = nn.Linear(2, 2)
    return nn.Sequential(layer, nn.BatchNorm1d(2), layer)


class Derivative(nn.Linear):
    """A linear layer that returns its own derivative, except in inference mode."""

    def forward(self, x: Tensor) -> Tensor:
        """Return one row for each row."""
        if torch.is_inference_mode_enabled():
            return super().forward(x)
        with torch.enable_grad():
            x = x.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(super().forward(x).square().sum(), x)
        return gradient


#: Factories of modules by kind.
KINDS: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)),
    "buffers": lambda: SharedBuffer(nn.Linear(2, 2)),
    "conditionally in place": ConditionallyInPlace,
    "derivative": lambda: Derivative(2, 2),
    "tied": _tied,
    "script": _scripted,
    "frozen": lambda: nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2).requires_grad_(False)),
}


def _fill(module: nn.Module) -> None:
    for buffer in module.buffers():
        buffer.fill_(3)


def _replace(module: nn.Module) -> None:
    for child in module.modules():
        for name, buffer in list(child._buffers.items()):
            if buffer is not None:
                setattr(child, name, torch.full_like(buffer, 2))


def _set_data(module: nn.Module) -> None:
    for buffer in module.buffers():
        buffer.data = torch.full_like(buffer, 5)


#: Changes of the module's buffers between two forwards, by name.
BUFFER_CHANGES: dict[str, Callable[[nn.Module], None]] = {
    "nothing": lambda _: None,
    "filled": _fill,
    "replaced": _replace,
    "new data": _set_data,
}


@dataclass(frozen=True)
class Forwards:
    """A sequence of forwards.

    Args:
        kind: The name of the module in ``KINDS``.
        training: Whether it is in training mode.
        steps: For each forward the number of rows, the name of the change before it, and
            whether it runs in inference mode.
        devices: The number of devices.
    """

    kind: str
    training: bool
    steps: Sequence[tuple[int, str, bool]]
    devices: int


_TWO_STEPS = [(4, "nothing", True), (6, "nothing", False)]
#: The first forward replaces one buffer or keeps it; the second changes it in place.
LATE_CHANGE = Forwards("conditionally in place", False, _TWO_STEPS, 2)
#: The first forward is in inference mode, and the second differentiates.
LATE_GRADIENTS = Forwards("derivative", False, _TWO_STEPS, 2)


def sequences() -> st.SearchStrategy[Forwards]:
    """Draw sequences whose chunks have at least two rows, as batch norm needs."""
    step = st.tuples(
        st.sampled_from([4, 6, 8, 9]), st.sampled_from(list(BUFFER_CHANGES)), st.booleans()
    )
    return st.builds(
        Forwards,
        st.sampled_from(list(KINDS)),
        st.booleans(),
        st.lists(step, min_size=2, max_size=4),
        st.integers(2, 3),
    )


def run_held_and_fresh(sequence: Forwards, target: Target, topology: Topology) -> tuple[Any, Any]:
    """Return the outputs and buffers of each forward, inside of ``hold`` and outside."""
    torch.manual_seed(0)
    devices = topology.take(sequence.devices)
    with devices[0]:  # Module.to would copy a shared buffer twice.
        module = KINDS[sequence.kind]().train(sequence.training)
    copied = copy.deepcopy(module)
    found = []
    for network, held in ((module, True), (copied, False)):
        torch.manual_seed(1)
        wrapper = target.data_parallel.DataParallel(network, devices)
        with wrapper.hold() if held else nullcontext():
            found.append([_step(wrapper, step, devices[0]) for step in sequence.steps])
    return found[0], found[1]


def _step(wrapper: Any, step: tuple[int, str, bool], device: torch.device) -> Any:
    rows, change, inference = step
    x = torch.rand(rows, 2, device=device)
    with torch.no_grad():
        BUFFER_CHANGES[change](wrapper.module)
        # inference_mode(False) would turn grad mode on.
        with torch.inference_mode() if inference else nullcontext():
            y = wrapper(x)
        buffers = {name: buffer.tolist() for name, buffer in wrapper.module.named_buffers()}
    return y.tolist(), buffers
