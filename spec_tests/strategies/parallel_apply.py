"""Calls of parallel_apply whose modules end well."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from torch import nn

from spec_tests.harness.concurrency.thread_order import ThreadOrder
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies import arguments
from spec_tests.strategies.calls import build
from spec_tests.strategies.modules import ModuleSpec, row_wise_specs
from spec_tests.strategies.tensors import device_slots

ANY_VALUES = arguments.values()
ANY_KEYWORDS = arguments.keywords()


class Passthrough(nn.Module):
    """Returns its number and all that it was given, when its turn has come."""

    def __init__(self, number: int, turns: ThreadOrder) -> None:
        super().__init__()
        self.number = number
        self.turns = turns

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Number, positional and keyword arguments."""
        with self.turns.turn(self.number):
            return self.number, args, kwargs


def ordinals(topology: Topology, slots: Sequence[int]) -> list[int]:
    """The devices of ``slots`` in the one spelling that every accelerator's users may use."""
    return [device.index for device in topology.take(slots)]


@dataclass(frozen=True)
class PassthroughCall:
    """One ``parallel_apply`` of modules that return what they are given.

    Args:
        arguments: The input of each module.
        keywords: The keyword arguments of each, or None for none at all.
        slots: The device of each.
        order: The numbers of the modules, in the order in which they end.
    """

    arguments: tuple[Any, ...]
    keywords: tuple[dict[str, Any], ...] | None
    slots: tuple[int, ...]
    order: tuple[int, ...]

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """Arguments and devices."""
        keywords = None if self.keywords is None else list(self.keywords)
        return {
            "inputs": build(list(self.arguments), topology),
            "kwargs_tup": build(keywords, topology),
            "devices": ordinals(topology, self.slots),
        }

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """What each module returned."""
        turns = ThreadOrder(self.order)
        modules = [Passthrough(number, turns) for number in range(len(self.order))]
        return target.parallel_apply.parallel_apply(modules, **inputs)

    def __repr__(self) -> str:
        devices = ", ".join(f"devices[{slot}].index" for slot in self.slots)
        keywords = None if self.keywords is None else list(self.keywords)
        return (
            f"parallel_apply([echo] * {len(self.order)}, {list(self.arguments)}, {keywords}, "
            f"[{devices}])  # the modules end in the order {self.order}"
        )


@st.composite
def passthrough_calls(
    draw: st.DrawFn,
    *,
    inputs: st.SearchStrategy[Any] = ANY_VALUES,
    keywords: st.SearchStrategy[dict[str, Any]] | None = ANY_KEYWORDS,
) -> PassthroughCall:
    """Calls that the documentation allows. Shrinks to one module and one tensor.

    Args:
        draw: Hypothesis's.
        inputs: The input of one module.
        keywords: The keyword arguments of one module; None for a call without ``kwargs_tup``.
    """
    slots = draw(device_slots())
    return PassthroughCall(
        arguments=tuple(draw(inputs) for _ in slots),
        keywords=None if keywords is None else tuple(draw(keywords) for _ in slots),
        slots=slots,
        order=tuple(draw(st.permutations(range(len(slots))))),
    )


@dataclass(frozen=True)
class ParallelApplyCall:
    """One ``parallel_apply`` of networks.

    Args:
        modules: The networks, each on its own device.
        rows: Rows of the input of each.
        slots: The device of each.
    """

    modules: tuple[ModuleSpec, ...]
    rows: tuple[int, ...]
    slots: tuple[int, ...]

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """Networks, inputs and devices."""
        triples = list(zip(self.modules, self.rows, self.slots, strict=True))
        return {
            "modules": [module.build(topology, slot) for module, _, slot in triples],
            "inputs": [
                module.rows(rows, requires_grad=True, slot=slot).build(topology)
                for module, rows, slot in triples
            ],
            "devices": ordinals(topology, self.slots),
        }

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """The results of the networks."""
        return target.parallel_apply.parallel_apply(**inputs)

    def __repr__(self) -> str:
        devices = ", ".join(f"devices[{slot}].index" for slot in self.slots)
        rows = ", ".join(f"x[:{rows}]" for rows in self.rows)
        return f"parallel_apply({list(self.modules)}, [{rows}], None, [{devices}])"


@st.composite
def parallel_apply_calls(draw: st.DrawFn) -> ParallelApplyCall:
    """Row-wise networks, each on its device. Shrinks to one linear layer and one row."""
    slots = draw(device_slots())
    return ParallelApplyCall(
        modules=tuple(draw(row_wise_specs(max_parts=2)) for _ in slots),
        rows=tuple(draw(st.integers(1, 3)) for _ in slots),
        slots=slots,
    )
