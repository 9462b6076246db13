"""Calls of parallel_apply: modules that return their arguments, networks, and failing modules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn

from spec_tests.checks.comparison import accepted
from spec_tests.checks.outcome import normalise, raised_by
from spec_tests.checks.thread_order import ThreadOrder
from spec_tests.machine.devices import Topology
from spec_tests.machine.target import Target
from spec_tests.strategies.calls import Again, DeviceAt, KeywordCall, on_any_device
from spec_tests.strategies.containers import CONSTANTS, OPAQUE, NewObject
from spec_tests.strategies.exceptions import ExceptionSpec
from spec_tests.strategies.modules import Placed, row_wise_specs
from spec_tests.strategies.scatter_gather import containers
from spec_tests.strategies.stateful_containers import Batch, Frozen
from spec_tests.strategies.tensors import device_slots, tensor_specs

#: The name of the function in `KeywordCall`.
_FUNCTION = "parallel_apply.parallel_apply"
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


#: Draws leaves or nested containers of leaves. Shrinks to a tensor of one element.
ANY_VALUES: st.SearchStrategy[Any] = st.recursive(
    _leaves(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | containers(inner, _NAMED_TUPLES)
        | st.dictionaries(st.sampled_from(["a", "b", 3]), inner, max_size=2)
    ),
    max_leaves=4,
)
#: Draws the keyword arguments of one module, of which many are None. Shrinks to no argument.
ANY_KEYWORDS = st.dictionaries(st.sampled_from(["x", "flag"]), ANY_VALUES | st.none(), max_size=2)


def ordinals(topology: Topology, slots: Sequence[int]) -> list[int]:
    """Return the ordinals of the devices with these numbers in the topology."""
    return [device.index for device in topology.take(slots)]


def _at(slots: Sequence[int]) -> list[DeviceAt]:
    return [DeviceAt(slot, "ordinal") for slot in slots]


class OrderedModule(nn.Module):
    """A module that waits for its turn, then returns its number and arguments, or raises.

    Args:
        number: The number of the module, which ``order`` contains.
        order: The order in which modules have their turns.
        error: A description of the error; None if forward returns.
    """

    def __init__(self, number: int, order: ThreadOrder, error: ExceptionSpec | None) -> None:
        super().__init__()
        self.number, self.order, self.error = number, order, error
        self.raised: BaseException | None = None
        self.device = -1

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return number, positional and keyword arguments, or raise the error. Keep the device."""
        with self.order.turn(self.number):
            if self.error is not None:
                self.device = torch.accelerator.current_device_index()
                self.raised = self.error.make(f"failure of module {self.number}")
                raise self.raised
        return self.number, args, kwargs


@dataclass(frozen=True)
class OrderedModules:
    """A description of a list of `OrderedModule`.

    Args:
        order: The numbers of the modules, in the order in which they finish.
        errors: Number of a failing module -> the exception that the module raises.
    """

    order: tuple[int, ...]
    errors: Mapping[int, ExceptionSpec]

    def build(self, topology: Topology) -> list[OrderedModule]:
        """Return new modules."""
        order = ThreadOrder(self.order)
        return [OrderedModule(i, order, self.errors.get(i)) for i in range(len(self.order))]


@on_any_device
@st.composite
def passthrough_calls(
    draw: st.DrawFn,
    *,
    inputs: st.SearchStrategy[Any] = ANY_VALUES,
    keywords: st.SearchStrategy[dict[str, Any]] | None = ANY_KEYWORDS,
) -> KeywordCall:
    """Draw calls of modules that return their arguments. Shrinks to one module and one tensor.

    Args:
        draw: The draw function of Hypothesis.
        inputs: A strategy for the input of one module.
        keywords: A strategy for the keyword arguments of one module; None for calls without
            ``kwargs_tup``.
    """
    slots = draw(device_slots())
    arguments = {
        "modules": OrderedModules(tuple(draw(st.permutations(range(len(slots))))), {}),
        "inputs": _draw_each(draw, inputs, len(slots)),
        "kwargs_tup": None if keywords is None else _draw_each(draw, keywords, len(slots)),
        "devices": _at(slots),
    }
    return KeywordCall(_FUNCTION, arguments)


def _draw_each(draw: st.DrawFn, values: st.SearchStrategy[Any], count: int) -> list[Any]:
    """Draw a value for each module, or the value of the first module `Again`."""
    others = values | st.just(Again(0))
    return [draw(values), *(draw(others) for _ in range(count - 1))]


@on_any_device
@st.composite
def parallel_apply_calls(draw: st.DrawFn) -> KeywordCall:
    """Draw calls of networks of `ROW_WISE` layers. Shrinks to one linear layer and one row."""
    slots = draw(device_slots())
    networks = [draw(row_wise_specs(max_layers_per_level=2)) for _ in slots]
    rows = [
        network.rows(draw(st.integers(1, 3)), requires_grad=True, slot=slot)
        for network, slot in zip(networks, slots, strict=True)
    ]
    arguments = {"modules": list(map(Placed, networks, slots)), "inputs": rows}
    return KeywordCall(_FUNCTION, {**arguments, "devices": _at(slots)})


@dataclass(frozen=True, repr=False)
class FailingCall(KeywordCall):
    """A call of ``parallel_apply`` in which some modules raise."""

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return class, text, ``args`` and ``errno`` of the error that the call raises."""
        try:
            return super().run(target, inputs)
        except Exception as error:
            args = [normalise(str(argument)) for argument in error.args]
            errno = getattr(error, "errno", None)
            return {"error": raised_by(error), "args": args, "errno": errno}


def failing_call(
    errors: Mapping[int, ExceptionSpec], slots: Sequence[int], order: Sequence[int] | None = None
) -> FailingCall:
    """Return a call in which some modules raise.

    Args:
        errors: Number of a failing module -> the exception that the module raises.
        slots: For each module: the number of its device in the topology.
        order: The numbers of the modules, in the order in which they finish; ascending if None.
    """
    count = len(slots)
    modules = OrderedModules(tuple(range(count) if order is None else order), errors)
    arguments = {"modules": modules, "inputs": [()] * count, "devices": _at(slots)}
    return FailingCall(_FUNCTION, arguments)


def error_and_module(
    call: FailingCall, target: Target, topology: Topology
) -> tuple[BaseException, OrderedModule]:
    """Return the error of a call, even a KeyboardInterrupt, and the first module that fails."""
    inputs = call.inputs(topology)
    # A target without the function raises here, outside the try block.
    _ = target.parallel_apply.parallel_apply
    try:
        KeywordCall.run(call, target, inputs)
    except BaseException as error:
        return error, next(each for each in inputs["modules"] if each.error is not None)
    raise accepted(call)


@st.composite
def failing_calls(draw: st.DrawFn, errors: st.SearchStrategy[ExceptionSpec]) -> FailingCall:
    """Draw calls in which some modules fail. Shrinks to one module."""
    slots = draw(device_slots())
    count = len(slots)
    numbers = st.lists(st.integers(0, count - 1), min_size=1, max_size=count, unique=True)
    failing = {number: draw(errors) for number in draw(numbers)}
    return failing_call(failing, slots, draw(st.permutations(range(count))))
