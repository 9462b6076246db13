"""Calls of data_parallel and DataParallel.

These calls are not drawn, because they show known divergences of the reference:

* DP-2: one device in ``device_ids`` and another output device,
* DP-1, FN-3: the CPU as a device,
* SG-1 to SG-3: arguments with different numbers of chunks,
* SG-6, SG-7: outputs that are not tensors,
* CO-4: modules that change their buffers, on repeated devices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from spec_tests.machine.capabilities import empty_sizes
from spec_tests.machine.devices import Topology
from spec_tests.machine.target import Target
from spec_tests.strategies.calls import (
    Buildable,
    DeviceAt,
    DistinctDevices,
    KeywordCall,
    any_device,
    build,
    code,
    device_lists,
    distinct_devices,
    on_any_device,
    repeated,
    while_current,
)
from spec_tests.strategies.compiled_modules import SCRIPT_MAKERS, SCRIPTABLE, ScriptSpec
from spec_tests.strategies.layers import ROW_WISE, seeded
from spec_tests.strategies.modules import module_specs
from spec_tests.strategies.tensors import TensorSpec

#: Kinds of layers whose gradients change only by float32 rounding if addends are reordered.
PRECISE = tuple(kind for kind in ROW_WISE if kind != "half")

#: Draws whether to call the function ``data_parallel``. The first example calls it, so that the
#: clause is not-offered if a target has only the class.
FUNCTIONAL = st.sampled_from([True, False])


@dataclass(frozen=True)
class DataParallelCall:
    """A call of ``data_parallel`` or of a new ``DataParallel``.

    Args:
        module: A description of the module.
        args: Positional arguments.
        kwargs: Keyword arguments.
        devices: ``device_ids``; None for all devices.
        output: ``output_device``; None for the first device.
        dim: The dimension that is split.
        functional: Whether to call ``data_parallel`` instead of ``DataParallel``.
        grad: Whether grad mode is enabled.
        source: The device of the module; None for the first device, which the reference requires.
        current: The number of the current device in the topology; None for the caller's.
    """

    module: Buildable
    args: Any
    kwargs: Mapping[str, object] = field(default_factory=dict)
    devices: Sequence[DeviceAt] | DistinctDevices | None = None
    output: object = None
    dim: int = 0
    functional: bool = False
    grad: bool = True
    source: DeviceAt | None = None
    current: int | None = None

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """Return the module on its device, its buffers and the arguments of the call."""
        module: Any = self.module.build(topology)
        module.to(topology.device(self._first_slot if self.source is None else self.source.slot))
        return {
            "module": module,
            "state": dict(module.named_buffers()),
            "args": build(self.args, topology),
            "kwargs": build(self.kwargs, topology),
            "devices": build(self.devices, topology),
            "output": build(self.output, topology),
        }

    @property
    def _first_slot(self) -> int | None:
        match self.devices:
            case DistinctDevices(slots):
                return slots[0]
            case [first, *_]:
                return first.slot
        return 0

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return the gathered outputs."""
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
        comments = "" if self.grad else "  # without gradients"
        comments += while_current(self.current)
        if isinstance(self.module, NewModule):
            comments += self.module.comment
        if self.functional:
            args = code(self.args)
            return f"data_parallel({self.module}, {args}, {settings}, {self.kwargs}){comments}"
        arguments = [code([*self.args])[1:-1]] if self.args else []
        arguments += [f"{name}={code(value)}" for name, value in self.kwargs.items()]
        return f"DataParallel({self.module}, {settings})({', '.join(arguments)}){comments}"


@dataclass(frozen=True, repr=False)
class AttributesCall(KeywordCall):
    """A call that constructs a ``DataParallel`` and returns its public attributes."""

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return the attributes by name."""
        wrapped = super().run(target, inputs)
        names = ("module", "device_ids", "output_device", "dim", "src_device_obj")
        return {name: getattr(wrapped, name) for name in names}


@on_any_device
@st.composite
def network_calls(
    draw: st.DrawFn,
    *,
    kinds: Sequence[str] = PRECISE,
    grads: Sequence[bool] = (True, False),
    slots: Sequence[int | None] = range(4),
) -> DataParallelCall:
    """Draw calls of networks. Shrinks to one linear layer, one row and one device.

    Args:
        draw: The draw function of Hypothesis.
        kinds: The kinds of layers. If a kind is not in `ROW_WISE`, no device is repeated.
        grads: The grad modes to draw from.
        slots: The numbers of the devices to draw from; None is the CPU.
    """
    module = draw(module_specs(kinds=kinds, max_layers_per_level=3))
    rows = draw(st.sampled_from([1, 2, 3, 4, 5, 8, *empty_sizes()]))
    devices: st.SearchStrategy[Any] = device_lists(slots=slots)
    if not set(kinds) <= set(ROW_WISE):
        devices = distinct_devices()
    return DataParallelCall(
        module=module,
        args=(module.rows(rows, requires_grad=draw(st.booleans()), slot=slots[0]),),
        devices=draw(devices),
        functional=draw(FUNCTIONAL),
        grad=draw(st.sampled_from(grads)),
    )


class WeightedLeaves(nn.Module):
    """A module that multiplies each tensor in its arguments by a parameter and ``factor``."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(2.0))

    def forward(self, *args: Any, factor: float = 1.0, **kwargs: Any) -> Any:
        """Return the arguments. Each tensor is multiplied by the parameter and ``factor``."""
        return self._multiply(args, factor), self._multiply(kwargs, factor)

    def _multiply(self, value: Any, factor: float) -> Any:
        if isinstance(value, Tensor):
            return value * self.weight * factor
        if isinstance(value, dict):
            return {key: self._multiply(member, factor) for key, member in value.items()}
        return type(value)(self._multiply(member, factor) for member in value)


@dataclass(frozen=True)
class NewModule:
    """A description of a module: its class and the arguments of the constructor."""

    module_class: type[nn.Module]
    args: tuple[Any, ...] = ()

    def build(self, topology: Topology) -> nn.Module:
        """Return a new module. Each call draws the same initial parameters."""
        return seeded(self.module_class, *self.args)

    @property
    def comment(self) -> str:
        """A comment that describes a class of the suite: the first line of its docstring."""
        if not self.module_class.__module__.startswith(__name__.partition(".")[0]):
            return ""
        line = (self.module_class.__doc__ or "").partition("\n")[0].rstrip(".")
        return f"  # {self.module_class.__name__}: {line}"

    def __repr__(self) -> str:
        return f"{self.module_class.__name__}({', '.join(map(repr, self.args))})"


@on_any_device
@st.composite
def nested_calls(draw: st.DrawFn, *, factors: Sequence[float] = ()) -> DataParallelCall:
    """Draw calls with nested arguments of equal extent along ``dim`` and different dimensions.

    Shrinks to one matrix, split along dim 0.

    Args:
        draw: The draw function of Hypothesis.
        factors: The values to draw the keyword argument ``factor`` from; empty for calls without
            ``factor``. If ``factors`` is not empty, the extent is the number of devices.
    """
    dim = draw(st.sampled_from([0, 1, -1]))
    devices = draw(device_lists(min_size=2))
    extent = len(devices) if factors else draw(st.sampled_from([4, 3, 1, 5, 2]))
    shapes = {
        0: [(extent, 2), (extent,)],
        1: [(2, extent), (2, extent, 1)],
        -1: [(3, extent), (extent,), (1, 3, extent)],
    }
    specs = st.builds(TensorSpec, st.sampled_from(shapes[dim]), requires_grad=st.booleans())
    values = st.recursive(
        specs,
        lambda inner: (
            st.lists(inner, min_size=1, max_size=2)
            | st.lists(inner, min_size=1, max_size=2).map(tuple)
            | st.dictionaries(st.sampled_from("ab"), inner, min_size=1, max_size=2)
        ),
        max_leaves=3,
    )
    names = st.sampled_from(["x", "method", "inputs", "dim"])  # Some are names of a wrapper.
    keywords = draw(st.dictionaries(names, values, max_size=2))
    return DataParallelCall(
        module=NewModule(WeightedLeaves),
        args=tuple(draw(repeated(draw(st.lists(values, min_size=1, max_size=2)), [""]))),
        kwargs={**keywords, **({"factor": draw(st.sampled_from(factors))} if factors else {})},
        devices=devices,
        output=draw(st.none() | any_device()),
        dim=dim,
        functional=draw(FUNCTIONAL),
    )


@on_any_device
@st.composite
def script_calls(draw: st.DrawFn) -> DataParallelCall:
    """Draw calls of script modules. Shrinks to a scripted linear layer and one row."""
    networks = module_specs(kinds=SCRIPTABLE, max_layers_per_level=2)
    script = ScriptSpec(draw(networks), draw(st.sampled_from(tuple(SCRIPT_MAKERS))))
    x = script.rows(draw(st.integers(1, 5)), requires_grad=True)
    return DataParallelCall(script, (x,), devices=draw(distinct_devices()))
