"""Calls of parallel_apply in which some modules raise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from torch import nn

from spec_tests.harness.compare.outcome import Failure, failure_of, normalise
from spec_tests.harness.concurrency.thread_order import ThreadOrder
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.exceptions import ExceptionSpec
from spec_tests.strategies.parallel_apply import ordinals
from spec_tests.strategies.tensors import device_slots


class FailingModule(nn.Module):
    """A module that waits for its turn in ``order``, then raises its error or returns its number.

    Args:
        number: The number of the module, which ``order`` contains.
        order: The order in which modules have their turns.
        error: A description of the error; None if forward returns ``number``.
    """

    def __init__(self, number: int, order: ThreadOrder, error: ExceptionSpec | None) -> None:
        super().__init__()
        self.number = number
        self.order = order
        self.error = error
        self.raised: BaseException | None = None

    def forward(self) -> int:
        """Wait for this module's turn. Raise its error if it has one, else return its number."""
        with self.order.turn(self.number):
            if self.error is not None:
                self.raised = self.error.make(f"failure of module {self.number}")
                raise self.raised
        return self.number


class ChainingModule(nn.Module):
    """A module that raises a ValueError while it handles a LookupError.

    Args:
        link: How the ValueError is raised: by ``raise ... from error`` (``from``), by a plain
            ``raise`` (``while``), or by ``raise ... from None`` (``from None``).
    """

    def __init__(self, link: str) -> None:
        super().__init__()
        self.link = link

    def forward(self) -> None:
        """Raise the ValueError."""
        try:
            raise LookupError("the first error")
        except LookupError as error:
            if self.link == "while":
                raise ValueError("the second error")  # noqa: B904  # a context without a cause
            raise ValueError("the second error") from {"from": error, "from None": None}[self.link]


@dataclass(frozen=True)
class ErrorData:
    """The parts of an exception that tests compare: class and text, ``args`` and ``errno``."""

    failure: Failure
    args: tuple[str, ...]
    errno: int | None


@dataclass(frozen=True)
class FailingCall:
    """A call of ``parallel_apply`` in which some modules raise.

    Args:
        errors: Number of a failing module -> the exception that the module raises.
        slots: For each module: the number of its device in the topology.
        order: The numbers of the modules, in the order in which they finish.
    """

    errors: Mapping[int, ExceptionSpec]
    slots: tuple[int, ...]
    order: tuple[int, ...]

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """Return the devices."""
        return {"devices": ordinals(topology, self.slots)}

    def modules(self) -> list[nn.Module]:
        """Return new modules."""
        order = ThreadOrder(self.order)
        count = len(self.slots)
        return [FailingModule(number, order, self.errors.get(number)) for number in range(count)]

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return the `ErrorData` of the exception that the call raises, else the outputs."""
        try:
            return self.apply(target, inputs["devices"])
        except Exception as error:
            return error_data(error)

    def apply(self, target: Target, devices: list[int]) -> Any:
        """Call ``parallel_apply`` and return the outputs. Exceptions are not caught."""
        return _call_parallel_apply(target, self.modules(), devices)

    def __repr__(self) -> str:
        errors = "; ".join(
            f"module {number} raises {error}" for number, error in self.errors.items()
        )
        devices = ", ".join(f"devices[{slot}].index" for slot in self.slots)
        count = len(self.slots)
        return (
            f"parallel_apply(modules, [()] * {count}, None, [{devices}])"
            f"  # {errors}; they finish in the order {self.order}"
        )


@dataclass(frozen=True)
class ChainingCall(FailingCall):
    """A call of ``parallel_apply`` in which module ``i`` is ``ChainingModule(links[i])``."""

    links: tuple[str, ...] = ()

    def modules(self) -> list[nn.Module]:
        """Return new modules."""
        return [ChainingModule(link) for link in self.links]


def error_and_modules(
    call: FailingCall, target: Target, topology: Topology
) -> tuple[BaseException, list[nn.Module]]:
    """Return the exception that the call raises, even a KeyboardInterrupt, and the modules."""
    modules = call.modules()
    # A target without the function raises here, outside the try block.
    _ = target.parallel_apply.parallel_apply
    try:
        _call_parallel_apply(target, modules, ordinals(topology, call.slots))
    except BaseException as error:
        return error, modules
    raise AssertionError(f"no exception was raised by the call\n  {call!r}")


def _call_parallel_apply(target: Target, modules: Sequence[nn.Module], devices: list[int]) -> Any:
    inputs: list[tuple[()]] = [()] * len(modules)
    return target.parallel_apply.parallel_apply(modules, inputs, devices=devices)


def error_data(error: BaseException) -> ErrorData:
    """Return the parts of ``error`` that tests compare."""
    args = tuple(normalise(str(argument)) for argument in error.args)
    return ErrorData(failure_of(error), args, getattr(error, "errno", None))


@st.composite
def failing_calls(
    draw: st.DrawFn,
    errors: st.SearchStrategy[ExceptionSpec],
    *,
    min_failing: int = 1,
    max_modules: int = 4,
) -> FailingCall:
    """Draw calls in which at least ``min_failing`` modules fail. Shrinks to the fewest modules."""
    slots = draw(device_slots(min_size=min_failing, max_size=max_modules))
    count = len(slots)
    numbers = st.lists(
        st.integers(0, count - 1), min_size=min_failing, max_size=count, unique=True
    )
    return FailingCall(
        errors={number: draw(errors) for number in draw(numbers)},
        slots=slots,
        order=tuple(draw(st.permutations(range(count)))),
    )


@st.composite
def chaining_calls(draw: st.DrawFn) -> ChainingCall:
    """Draw calls whose modules all raise linked exceptions. Shrinks to one module."""
    links = draw(st.lists(st.sampled_from(["from", "while", "from None"]), min_size=1, max_size=2))
    slots = draw(device_slots(min_size=len(links), max_size=len(links)))
    return ChainingCall({}, slots, tuple(range(len(links))), tuple(links))
