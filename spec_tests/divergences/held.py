"""Forwards in a row, of held replicas and of new ones."""

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


class Cached(nn.Module):
    """Weighted rows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """The rows."""
        return x * self.weight


class Twice(nn.Module):
    """One buffer in two modules, and one that is rebound; all change the result."""

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
        """The rows, and what the buffers hold."""
        y: Tensor = (
            self.inner(x) + self.total + 2 * self.inner.get_buffer("shared") + 3 * self.last
        )
        self.total += x.sum(0)
        self.last = self.total + 1
        return y


class Seldom(nn.Module):
    """Changes a buffer, which it has by two names, in place for odd chunks only."""

    one: Tensor
    other: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("one", torch.zeros(2))
        self.register_buffer("other", self.one)
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        """The rows, and what the buffers hold."""
        if len(x) % 2:
            self.one += 1
            self.count += 1
        else:
            self.one = self.one + 5
        return x + self.other + self.count


def _scripted() -> nn.Module:
    with warnings.catch_warnings():
        # TorchScript is deprecated; callers still have it.
        warnings.simplefilter("ignore")
        module: nn.Module = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    return module


def _tied() -> nn.Module:
    layer = nn.Linear(2, 2)
    return nn.Sequential(layer, nn.BatchNorm1d(2), layer)


class Slope(nn.Linear):
    """Gives its own derivative, outside of inference mode."""

    def forward(self, x: Tensor) -> Tensor:
        """One row for each row."""
        if torch.is_inference_mode_enabled():
            return super().forward(x)
        with torch.enable_grad():
            x = x.clone().requires_grad_()
            (slope,) = torch.autograd.grad(super().forward(x).square().sum(), x)
        return slope


KINDS: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)),
    "buffers": lambda: Twice(nn.Linear(2, 2)),
    "seldom": Seldom,
    "slope": lambda: Slope(2, 2),
    "tied": _tied,
    "script": _scripted,
    "frozen": lambda: nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2).requires_grad_(False)),
}


def _fill(module: nn.Module) -> None:
    for buffer in module.buffers():
        buffer.fill_(3)


def _swap(module: nn.Module) -> None:
    for each in module.modules():
        for name, buffer in list(each._buffers.items()):
            if buffer is not None:
                setattr(each, name, torch.full_like(buffer, 2))


def _data(module: nn.Module) -> None:
    for buffer in module.buffers():
        buffer.data = torch.full_like(buffer, 5)


#: What happens to the module's buffers between two forwards.
BETWEEN: dict[str, Callable[[nn.Module], None]] = {
    "nothing": lambda _: None,
    "filled": _fill,
    "replaced": _swap,
    "other data": _data,
}


@dataclass(frozen=True)
class Forwards:
    """Forwards in a row.

    Args:
        kind: The module.
        training: Whether it is in training mode.
        steps: For each forward the rows, what happens before it, and inference mode.
        devices: How many.
    """

    kind: str
    training: bool
    steps: Sequence[tuple[int, str, bool]]
    devices: int


_LATER = [(4, "nothing", True), (6, "nothing", False)]
#: The first forward only rebinds a buffer, or leaves it alone; the second changes it in place.
LATE_CHANGE = Forwards("seldom", False, _LATER, 2)
#: The first forward is in inference mode, and the second differentiates.
LATE_GRADIENTS = Forwards("slope", False, _LATER, 2)


def sequences() -> st.SearchStrategy[Forwards]:
    """Sequences; each chunk has two rows at least, as batch norm needs."""
    step = st.tuples(st.sampled_from([4, 6, 8, 9]), st.sampled_from(list(BETWEEN)), st.booleans())
    return st.builds(
        Forwards,
        st.sampled_from(list(KINDS)),
        st.booleans(),
        st.lists(step, min_size=2, max_size=4),
        st.integers(2, 3),
    )


def held_and_not(sequence: Forwards, target: Target, topology: Topology) -> tuple[Any, Any]:
    """The outputs and the buffers of each forward, inside of ``hold`` and outside."""
    torch.manual_seed(0)
    devices = topology.take(sequence.devices)
    with devices[0]:  # Moved there, one buffer of two modules would become two.
        module = KINDS[sequence.kind]().train(sequence.training)
    twin = copy.deepcopy(module)
    found = []
    for each, held in ((module, True), (twin, False)):
        torch.manual_seed(1)
        wrapper = target.data_parallel.DataParallel(each, devices)
        with wrapper.hold() if held else nullcontext():
            found.append([_step(wrapper, step, devices[0]) for step in sequence.steps])
    return found[0], found[1]


def _step(wrapper: Any, step: tuple[int, str, bool], device: torch.device) -> Any:
    rows, between, inference = step
    x = torch.rand(rows, 2, device=device)
    with torch.no_grad():
        BETWEEN[between](wrapper.module)
        # Off it would turn grad mode on.
        with torch.inference_mode() if inference else nullcontext():
            y = wrapper(x)
        buffers = {name: buffer.tolist() for name, buffer in wrapper.module.named_buffers()}
    return y.tolist(), buffers
