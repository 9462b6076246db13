"""Calls of data_parallel and DataParallel.

What the register of differences is about is left out: one device with an output elsewhere (DP-2),
a CPU that is named (DP-1, FN-3), arguments that give different numbers of chunks (SG-1 to SG-3),
outputs that are no tensors (SG-6, SG-7), buffers that replicas change on a device that is given
twice (CO-4).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.calls import Buildable, DeviceAt, DistinctDevices, build
from spec_tests.strategies.devices import device_lists, distinct_devices
from spec_tests.strategies.jit_modules import SCRIPT_MAKERS, SCRIPTABLE, ScriptSpec
from spec_tests.strategies.layers import ROW_WISE
from spec_tests.strategies.modules import module_specs
from spec_tests.strategies.tensors import TensorSpec

#: Layers whose gradients, summed in another order, differ by rounding of float32 at most.
PRECISE = tuple(kind for kind in ROW_WISE if kind != "half")


@dataclass(frozen=True)
class DataParallelCall:
    """One call of ``data_parallel``, or one of a new ``DataParallel``.

    Args:
        module: A description of the module.
        args: Positional arguments.
        kwargs: Keyword arguments.
        devices: The devices; None for all.
        output: Where the outputs go; None for the first device.
        dim: The dimension that is split.
        functional: Whether it is ``data_parallel``.
        grad: Grad mode.
        home: Where the module is; None for the first device, where it has to be.
    """

    module: Buildable
    args: Any
    kwargs: Mapping[str, object] = field(default_factory=dict)
    devices: Sequence[DeviceAt] | DistinctDevices | None = None
    output: object = None
    dim: int = 0
    functional: bool = False
    grad: bool = True
    home: DeviceAt | None = None

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """The module with its state, and all arguments."""
        module: Any = self.module.build(topology)
        module.to(topology.device(self._first if self.home is None else self.home.slot))
        return {
            "module": module,
            "state": dict(module.named_buffers()),
            "args": build(self.args, topology),
            "kwargs": build(self.kwargs, topology),
            "devices": build(self.devices, topology),
            "output": build(self.output, topology),
        }

    @property
    def _first(self) -> int | None:
        match self.devices:
            case DistinctDevices(slots):
                return slots[0]
            case [first, *_]:
                return first.slot
        return 0

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """The outputs for the whole batch."""
        settings = inputs["devices"], inputs["output"], self.dim
        with torch.set_grad_enabled(self.grad):
            if self.functional:
                return target.data_parallel.data_parallel(
                    inputs["module"], inputs["args"], *settings, inputs["kwargs"] or None
                )
            wrapped = target.data_parallel.DataParallel(inputs["module"], *settings)
            return wrapped(*inputs["args"], **inputs["kwargs"])

    def __repr__(self) -> str:
        settings = f"{self.devices}, {self.output}, {self.dim}"
        mode = "" if self.grad else "  # without gradients"
        if self.functional:
            return f"data_parallel({self.module}, {self.args}, {settings}, {self.kwargs}){mode}"
        return f"DataParallel({self.module}, {settings})(*{self.args}, **{self.kwargs}){mode}"


@st.composite
def network_calls(
    draw: st.DrawFn,
    *,
    kinds: Sequence[str] = PRECISE,
    min_devices: int = 1,
    grads: Sequence[bool] = (True, False),
) -> DataParallelCall:
    """A network on rows. Shrinks to one linear layer, one row and the fewest devices.

    Args:
        draw: Hypothesis's.
        kinds: The kinds of layers. With others than `ROW_WISE`, which change buffers, no device
            is given twice.
        min_devices: Fewest devices.
        grads: Grad modes.
    """
    module = draw(module_specs(kinds=kinds, max_parts=3))
    rows = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 0]))
    devices: st.SearchStrategy[Any] = device_lists(min_size=min_devices)
    if not set(kinds) <= set(ROW_WISE):
        devices = distinct_devices()
    return DataParallelCall(
        module=module,
        args=(module.rows(rows, requires_grad=draw(st.booleans())),),
        devices=draw(devices),
        functional=draw(st.booleans()),
        grad=draw(st.sampled_from(grads)),
    )


class WeightedLeaves(nn.Module):
    """Every tensor that it is given, nested or not, times a parameter and a factor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, *args: Any, factor: float = 1.0, **kwargs: Any) -> Any:
        """The products, in the containers of the arguments."""
        return self._times(args, factor), self._times(kwargs, factor)

    def _times(self, value: Any, factor: float) -> Any:
        if isinstance(value, Tensor):
            return value * self.weight * factor
        if isinstance(value, dict):
            return {key: self._times(member, factor) for key, member in value.items()}
        return type(value)(self._times(member, factor) for member in value)


@dataclass(frozen=True)
class NewModule:
    """A module made by calling its class."""

    kind: type[nn.Module]
    args: tuple[Any, ...] = ()

    def build(self, topology: Topology) -> nn.Module:
        """The module, with the same parameters every time."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return self.kind(*self.args)

    def __repr__(self) -> str:
        return f"{self.kind.__name__}({', '.join(map(repr, self.args))})"


@st.composite
def nested_calls(draw: st.DrawFn, *, factors: Sequence[float] = ()) -> DataParallelCall:
    """Nested arguments of equal extent along any ``dim``. Shrinks to one vector.

    Args:
        draw: Hypothesis's.
        factors: Numbers one of which is a keyword argument, too; then there is a chunk for each
            device.
    """
    dim = draw(st.sampled_from([0, 1, -1]))
    devices = draw(device_lists(min_size=2))
    extent = len(devices) if factors else draw(st.sampled_from([4, 3, 1, 5, 2]))
    shape = {0: (extent, 2), 1: (2, extent), -1: (3, extent)}[dim]
    tensors = st.builds(TensorSpec, st.just(shape), requires_grad=st.booleans())
    values = st.recursive(
        tensors,
        lambda inner: (
            st.lists(inner, min_size=1, max_size=2)
            | st.lists(inner, min_size=1, max_size=2).map(tuple)
            | st.dictionaries(st.sampled_from("ab"), inner, min_size=1, max_size=2)
        ),
        max_leaves=3,
    )
    named = draw(st.dictionaries(st.sampled_from("xy"), values, max_size=2))
    return DataParallelCall(
        module=NewModule(WeightedLeaves),
        args=tuple(draw(st.lists(values, min_size=1, max_size=2))),
        kwargs={**named, **({"factor": draw(st.sampled_from(factors))} if factors else {})},
        devices=devices,
        dim=dim,
        functional=draw(st.booleans()),
    )


@st.composite
def script_calls(draw: st.DrawFn) -> DataParallelCall:
    """Script modules on rows. Shrinks to a scripted linear layer and one row."""
    networks = module_specs(kinds=SCRIPTABLE, max_parts=2)
    script = ScriptSpec(draw(networks), draw(st.sampled_from(tuple(SCRIPT_MAKERS))))
    x = script.rows(draw(st.integers(1, 5)), requires_grad=True)
    return DataParallelCall(script, (x,), devices=draw(distinct_devices()))
