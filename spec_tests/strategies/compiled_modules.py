"""Modules that TorchScript or torch.compile compiles, entirely or partly.

Script modules are scripted, traced, or children of a Python module.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from spec_tests.checks.snapshot import Named
from spec_tests.machine.devices import Topology
from spec_tests.machine.target import Target
from spec_tests.strategies.layers import seeded
from spec_tests.strategies.modules import ModuleSpec, module_specs
from spec_tests.strategies.replicate import ReplicateCall, slot_lists
from spec_tests.strategies.tensors import TensorSpec

#: Kinds of layers that ``torch.jit.script`` accepts.
SCRIPTABLE = ("linear", "tanh", "linear_without_bias", "layer_norm", "batch_norm")


def _trace(network: nn.Module, example_input: Tensor) -> nn.Module:
    # The check of the trace needs operators that a back end may lack, such as isclose.
    traced: nn.Module = torch.jit.trace(network, example_input, check_trace=False)  # type: ignore[no-untyped-call]
    return traced


def _script_inside_sequential(network: nn.Module, example_input: Tensor) -> nn.Module:
    scripted = torch.jit.script(network)
    width = example_input.size(1)
    linear = nn.Linear(width, width).to(example_input)
    return nn.Sequential(linear, scripted, nn.Tanh(), scripted)


#: For each kind: the function that makes this kind of script module from a network and an input.
SCRIPT_MAKERS: Mapping[str, Callable[[nn.Module, Tensor], nn.Module]] = {
    "scripted": lambda network, example_input: torch.jit.script(network),
    "traced": _trace,
    "below_python": _script_inside_sequential,
}


@dataclass(frozen=True)
class ScriptSpec:
    """A description of a script module: its network, and one of the `SCRIPT_MAKERS`."""

    network: ModuleSpec
    kind: str

    def rows(self, count: int, *, requires_grad: bool = False, slot: int | None = 0) -> TensorSpec:
        """Return the description of an input with ``count`` rows."""
        return self.network.rows(count, requires_grad=requires_grad, slot=slot)

    def build(self, topology: Topology, slot: int | None = 0) -> nn.Module:
        """Return a new module on device number ``slot``, or on the CPU if ``slot`` is None."""
        rows = self.rows(3, slot=slot).build(topology)
        return seeded(SCRIPT_MAKERS[self.kind], self.network.build(topology, slot), rows)

    def __repr__(self) -> str:
        return f"{self.kind}({self.network!r})"


@dataclass(frozen=True, repr=False)
class ScriptCall(ReplicateCall):
    """A call of ``replicate`` with a script module, and a call of each replica."""

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return the training modes, the tensors and the outputs of the replicas."""
        module, rows = inputs["module"], inputs["rows"]
        replicas = target.replicate.replicate(module, inputs["devices"], self.detach)
        outputs = [replica(x) for replica, x in zip(replicas, rows, strict=True)]
        return Named(
            training=[replica.training for replica in replicas],
            tensors=[_tensors_by_name(replica, module) for replica in replicas],
            output=outputs,
        )


def _tensors_by_name(replica: nn.Module, source: nn.Module) -> dict[str, Any]:
    names = [*dict(source.named_parameters()), *dict(source.named_buffers())]
    return {name: attrgetter(name)(replica) for name in names}


@st.composite
def script_calls(draw: st.DrawFn) -> ScriptCall:
    """Draw calls of ``replicate`` with a scripted network. Shrinks to a linear layer."""
    network = draw(module_specs(kinds=SCRIPTABLE, dtypes=(torch.float32,), max_layers_per_level=2))
    script = ScriptSpec(network, "scripted")
    return ScriptCall(script, draw(slot_lists(max_size=3)), draw(st.booleans()))


class PartlyBuiltScript(torch.jit.ScriptModule):
    """A script module whose constructor calls ``callback(self)`` before its child is scripted."""

    def __init__(self, callback: Callable[["PartlyBuiltScript"], object]) -> None:
        super().__init__()
        self.child = nn.Linear(2, 2)
        self.used = None
        callback(self)


#: A backend of torch.compile: its name, or a function that compiles a captured graph.
Backend = str | Callable[..., Any]


def _compile(network: nn.Module, backend: Backend) -> nn.Module:
    compiled: nn.Module = torch.compile(network, backend=backend)  # type: ignore[assignment]
    return compiled


def _compile_in_place(network: nn.Module, backend: Backend) -> nn.Module:
    network.compile(backend=backend)
    return network


def _compile_child(network: nn.Module, backend: Backend) -> nn.Module:
    linear = nn.Linear(4, 4).to(next(network.parameters()))
    return nn.Sequential(_compile(network, backend), nn.Tanh(), linear)


#: For each way to compile a module m: a function that compiles a module with a backend.
COMPILATIONS: Mapping[str, Callable[[nn.Module, Backend], nn.Module]] = {
    "torch.compile(m)": _compile,
    "m.compile()": _compile_in_place,
    "a compiled child": _compile_child,
}
