"""Script modules: scripted, traced, and as children of Python modules."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.modules import ModuleSpec, module_specs
from spec_tests.strategies.replicate import ReplicateCall, slot_lists
from spec_tests.strategies.tensors import TensorSpec

#: Layers that can be scripted.
SCRIPTABLE = ("linear", "tanh", "linear_without_bias", "layer_norm", "batch_norm")


def _scripted(network: nn.Module, rows: Tensor) -> nn.Module:
    return torch.jit.script(network)


def _traced(network: nn.Module, rows: Tensor) -> nn.Module:
    traced: nn.Module = torch.jit.trace(network, rows)  # type: ignore[no-untyped-call]
    return traced


def _below_python(network: nn.Module, rows: Tensor) -> nn.Module:
    inside = torch.jit.script(network)
    return nn.Sequential(nn.Linear(rows.size(1), rows.size(1)).to(rows), inside, nn.Tanh(), inside)


#: The function that makes each kind of script module.
SCRIPT_MAKERS: Mapping[str, Callable[[nn.Module, Tensor], nn.Module]] = {
    "scripted": _scripted,
    "traced": _traced,
    "below_python": _below_python,
}


@dataclass(frozen=True)
class ScriptSpec:
    """A description of a script module: its network, and one of the `SCRIPT_MAKERS`."""

    network: ModuleSpec
    how: str

    def build(self, topology: Topology, slot: int | None = 0) -> nn.Module:
        """Return a new script module on the device of ``slot``; None is the CPU."""
        rows = self.rows(3, slot=slot).build(topology)
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            # TorchScript is deprecated, but callers still use it.
            warnings.simplefilter("ignore")
            torch.default_generator.manual_seed(0)
            return SCRIPT_MAKERS[self.how](self.network.build(topology, slot), rows)

    def rows(self, count: int, *, requires_grad: bool = False, slot: int | None = 0) -> TensorSpec:
        """Return an input of ``count`` rows."""
        return self.network.rows(count, requires_grad=requires_grad, slot=slot)

    def __repr__(self) -> str:
        return f"{self.how}({self.network!r})"


@dataclass(frozen=True, repr=False)
class ScriptCall(ReplicateCall):
    """A call of ``replicate`` with a script module, and of its replicas."""

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return modes, tensors and outputs of the replicas."""
        module, rows = inputs["module"], inputs["rows"]
        replicas = target.replicate.replicate(module, inputs["devices"], self.detach)
        outputs = [replica(each) for replica, each in zip(replicas, rows, strict=True)]
        modes = [replica.training for replica in replicas]
        return {
            "modes": modes,
            "tensors": [_tensors(replica, module) for replica in replicas],
            "outputs": outputs,
        }


def _tensors(replica: nn.Module, source: nn.Module) -> dict[str, Any]:
    found = {}
    for name in [*dict(source.named_parameters()), *dict(source.named_buffers())]:
        value: Any = replica
        for part in name.split("."):
            value = getattr(value, part)
        found[name] = value
    return found


@st.composite
def script_calls(draw: st.DrawFn, *how: str) -> ScriptCall:
    """Draw ``replicate`` of script modules of the kinds ``how``. Shrinks to the first kind."""
    network = draw(module_specs(kinds=SCRIPTABLE, dtypes=(torch.float32,), max_parts=2))
    script = ScriptSpec(network, draw(st.sampled_from(how)))
    return ScriptCall(script, draw(slot_lists(max_size=3)), draw(st.booleans()))


class PartlyBuiltScript(torch.jit.ScriptModule):
    """A script module that calls ``use(self)`` while its child is still a Python module."""

    def __init__(self, use: Callable[["PartlyBuiltScript"], object]) -> None:
        super().__init__()
        self.child = nn.Linear(2, 2)
        self.used = None
        use(self)
