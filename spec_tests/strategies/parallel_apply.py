"""Calls of parallel_apply in which no module raises."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn

from spec_tests.harness.concurrency.thread_order import ThreadOrder
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.calls import Again, build, code, on_any_device, while_current
from spec_tests.strategies.containers import CONSTANTS, OPAQUE, NewObject
from spec_tests.strategies.modules import ModuleSpec, row_wise_specs
from spec_tests.strategies.scatter_gather import containers
from spec_tests.strategies.stateful_containers import Batch, Frozen
from spec_tests.strategies.tensors import device_slots, tensor_specs

#: The kinds of named tuples.
_NAMED_TUPLES = ("Pair", "Typed")


def _leaves() -> st.SearchStrategy[Any]:
    """Draw arguments that are not containers. Shrinks to a tensor of one element."""
    shapes = st.sampled_from([(1,), (2, 3), (), (0,)])
    specs = tensor_specs(
        shape=shapes, dtypes=(torch.float32, torch.int64), layouts=("contiguous",)
    )
    objects = [*map(NewObject, OPAQUE), Frozen(7, (None,)), Batch]
    return specs | st.sampled_from([*CONSTANTS, *objects])


def values() -> st.SearchStrategy[Any]:
    """Draw leaves or nested containers of leaves. Shrinks to a tensor of one element."""
    return st.recursive(
        _leaves(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | containers(inner, _NAMED_TUPLES)
            | st.dictionaries(st.sampled_from(["a", "b", 3]), inner, max_size=2)
        ),
        max_leaves=4,
    )


def keywords() -> st.SearchStrategy[dict[str, Any]]:
    """Draw the keyword arguments of one module. Shrinks to no argument."""
    return st.dictionaries(st.sampled_from(["x", "flag"]), values(), max_size=2)


ANY_VALUES = values()
ANY_KEYWORDS = keywords()


class Passthrough(nn.Module):
    """A module that waits for its turn in ``order``, then returns its number and its arguments."""

    def __init__(self, number: int, order: ThreadOrder) -> None:
        super().__init__()
        self.number = number
        self.order = order

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the number of the module, the positional and the keyword arguments."""
        with self.order.turn(self.number):
            return self.number, args, kwargs


def ordinals(topology: Topology, slots: Sequence[int]) -> list[int]:
    """Return the ordinals of the devices with these numbers in the topology."""
    return [device.index for device in topology.take(slots)]


@dataclass(frozen=True)
class PassthroughCall:
    """A call of ``parallel_apply`` with modules that return their arguments.

    Args:
        arguments: The input of each module.
        keywords: The keyword arguments of each module; None for a call without ``kwargs_tup``.
        slots: For each module: the number of its device in the topology.
        order: The numbers of the modules, in the order in which they finish.
        current: The number of the current device in the topology; None for the caller's.
    """

    arguments: tuple[Any, ...]
    keywords: tuple[Any, ...] | None
    slots: tuple[int, ...]
    order: tuple[int, ...]
    current: int | None = None

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """Return the arguments of the call."""
        keywords = None if self.keywords is None else list(self.keywords)
        return {
            "inputs": build(list(self.arguments), topology),
            "kwargs_tup": build(keywords, topology),
            "devices": ordinals(topology, self.slots),
        }

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return the output of each module."""
        order = ThreadOrder(self.order)
        modules = [Passthrough(number, order) for number in range(len(self.order))]
        return target.parallel_apply.parallel_apply(modules, **inputs)

    def __repr__(self) -> str:
        devices = ", ".join(f"devices[{slot}].index" for slot in self.slots)
        keywords = None if self.keywords is None else list(self.keywords)
        return (
            f"parallel_apply([passthrough] * {len(self.order)}, {code(list(self.arguments))}, "
            f"{code(keywords)}, [{devices}])  # the modules finish in the order {self.order}"
            f"{while_current(self.current)}"
        )


@on_any_device
@st.composite
def passthrough_calls(
    draw: st.DrawFn,
    *,
    inputs: st.SearchStrategy[Any] = ANY_VALUES,
    keywords: st.SearchStrategy[dict[str, Any]] | None = ANY_KEYWORDS,
) -> PassthroughCall:
    """Draw calls of `Passthrough` modules. Shrinks to one module and one tensor.

    Args:
        draw: The draw function of Hypothesis.
        inputs: A strategy for the input of one module.
        keywords: A strategy for the keyword arguments of one module; None for calls without
            ``kwargs_tup``.
    """
    slots = draw(device_slots())
    return PassthroughCall(
        arguments=_draw_each(draw, inputs, len(slots)),
        keywords=None if keywords is None else _draw_each(draw, keywords, len(slots)),
        slots=slots,
        order=tuple(draw(st.permutations(range(len(slots))))),
    )


def _draw_each(draw: st.DrawFn, values: st.SearchStrategy[Any], count: int) -> tuple[Any, ...]:
    """Draw a value for each module, or the value of the first module `Again`."""
    others = values | st.just(Again(0))
    return draw(values), *(draw(others) for _ in range(count - 1))


@dataclass(frozen=True)
class ParallelApplyCall:
    """A call of ``parallel_apply`` with networks of `ROW_WISE` layers.

    Args:
        modules: Descriptions of the networks.
        rows: For each network: the number of rows of its input.
        slots: For each network: the number of its device in the topology.
        current: The number of the current device in the topology; None for the caller's.
    """

    modules: tuple[ModuleSpec, ...]
    rows: tuple[int, ...]
    slots: tuple[int, ...]
    current: int | None = None

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """Return the networks, their inputs and their devices."""
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
        """Return the outputs of the networks."""
        return target.parallel_apply.parallel_apply(**inputs)

    def __repr__(self) -> str:
        devices = ", ".join(f"devices[{slot}].index" for slot in self.slots)
        rows = ", ".join(f"x[:{rows}]" for rows in self.rows)
        call = f"parallel_apply({list(self.modules)}, [{rows}], None, [{devices}])"
        return f"{call}{while_current(self.current)}"


@on_any_device
@st.composite
def parallel_apply_calls(draw: st.DrawFn) -> ParallelApplyCall:
    """Draw calls of networks of `ROW_WISE` layers. Shrinks to one linear layer and one row."""
    slots = draw(device_slots())
    return ParallelApplyCall(
        modules=tuple(draw(row_wise_specs(max_layers_per_level=2)) for _ in slots),
        rows=tuple(draw(st.integers(1, 3)) for _ in slots),
        slots=slots,
    )
