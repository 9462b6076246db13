"""Calls of replicate, and calls of its replicas.

The module is on the first device. Calls in which the reference is wrong are not drawn: copies on
repeated devices that share memory (divergence CO-4), complex parameters (RE-5 and RE-6), and the
identity of a parameter that is also a buffer (RE-14).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hypothesis import strategies as st
from torch import nn

from spec_tests.checks.replica_structure import replica_structure
from spec_tests.machine.devices import Topology
from spec_tests.machine.target import Target
from spec_tests.strategies.calls import SPELLINGS, DeviceAt, on_any_device, while_current
from spec_tests.strategies.layers import LAYER_KINDS
from spec_tests.strategies.module_kinds import ModuleOfKind
from spec_tests.strategies.modules import ModuleSpec, module_specs
from spec_tests.strategies.supported_layers import computed
from spec_tests.strategies.tensors import TensorSpec, device_slots


class Network(Protocol):
    """A description of a module and of its input."""

    def build(self, topology: Topology, slot: int | None = 0) -> nn.Module:
        """Return a new module on device number ``slot``, or on the CPU if ``slot`` is None."""

    def rows(self, count: int, *, requires_grad: bool = False, slot: int | None = 0) -> TensorSpec:
        """Return the description of an input with ``count`` rows."""


@dataclass(frozen=True)
class ReplicateCall:
    """A call of ``replicate``, followed by calls of some replicas.

    Args:
        network: A description of the module.
        slots: The numbers of the devices in the topology; the module is on the first one.
        detach: Whether the replicas' parameters are detached.
        runs: For each later call: a number. Modulo the number of devices, it is the number of the
            replica.
        spelling: The spelling of the devices: ``device``, ``ordinal`` or ``text``.
        repeated: Whether ``devices`` may name a device twice.
        current: The number of the current device in the topology; None for the caller's.
    """

    network: Network
    slots: tuple[int, ...]
    detach: bool = False
    runs: tuple[int, ...] = ()
    spelling: str = "device"
    repeated: bool = False
    current: int | None = None

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """Return the module, the devices and an input for each device."""
        places = topology.take(self.slots)
        places = places if self.repeated else list(dict.fromkeys(places))
        spellings = {"device": places, "ordinal": [each.index for each in places]}
        rows = self.network.rows(3, slot=None).build(topology)
        return {
            "module": self.network.build(topology, self.slots[0]),
            "devices": spellings.get(self.spelling) or list(map(str, places)),
            "rows": [rows.to(place) for place in places],
        }

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return the type of the result, the structure of each replica, and all outputs."""
        module, devices = inputs["module"], inputs["devices"]
        replicas = target.replicate.replicate(module, devices, self.detach)
        runs = [index % len(devices) for index in self.runs]
        outputs = [replicas[index](inputs["rows"][index]) for index in runs]
        return {
            "class": type(replicas),
            "replicas": [replica_structure(replica, module) for replica in replicas],
            "outputs": outputs,
        }

    def __repr__(self) -> str:
        devices = ", ".join(repr(DeviceAt(slot, self.spelling)) for slot in self.slots)
        runs = f", then replicas {list(self.runs)} called" if self.runs else ""
        call = f"replicate({self.network!r}, [{devices}], detach={self.detach}){runs}"
        return f"{call}{while_current(self.current)}"


def slot_lists(*, max_size: int = 4) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw numbers of distinct devices in any order. Shrinks to number 0."""
    slots = st.lists(st.integers(0, 3), min_size=1, max_size=max_size, unique=True)
    return slots.map(tuple)


@on_any_device
@st.composite
def replicate_calls(
    draw: st.DrawFn, *, kinds: Sequence[str] = tuple(LAYER_KINDS), called: bool = False
) -> ReplicateCall:
    """Draw calls of ``replicate`` with networks of ``kinds``. Shrinks to one linear layer.

    Args:
        draw: The draw function of Hypothesis.
        kinds: The kinds of layers.
        called: Whether some replicas are called afterwards. A parameter's gradient is then a sum
            whose rounding depends on the order of the autograd threads.
    """
    runs = draw(st.lists(st.integers(0, 3), max_size=3).map(tuple)) if called else ()
    kinds = [kind for kind in kinds if kind != "parameter_as_buffer"]
    network, slots = draw(module_specs(kinds=kinds)), draw(slot_lists())
    spelling = draw(st.sampled_from(SPELLINGS))
    return ReplicateCall(network, slots, draw(st.booleans()), runs, spelling)


def law_calls(
    specs: st.SearchStrategy[ModuleSpec], *, detach: Sequence[bool] = (False,)
) -> st.SearchStrategy[ReplicateCall]:
    """Draw calls of ``replicate``, possibly with repeated devices. Shrinks to one device."""
    return st.builds(
        ReplicateCall,
        specs,
        device_slots(),
        st.sampled_from(detach),
        spelling=st.sampled_from(SPELLINGS),
        repeated=st.just(True),
    )


@on_any_device
@st.composite
def module_kind_calls(draw: st.DrawFn, *kinds: str) -> ReplicateCall:
    """Draw calls of ``replicate`` with a module of a kind. Shrinks to the first of ``kinds``."""
    network = ModuleOfKind(draw(st.sampled_from(computed(kinds))))
    runs = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple))
    return ReplicateCall(network, draw(slot_lists()), draw(st.booleans()), runs)
