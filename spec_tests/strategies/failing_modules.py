"""Calls of parallel_apply in which some modules raise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from torch import nn

from spec_tests.harness.compare.outcome import Failure, failure, normalised
from spec_tests.harness.concurrency.thread_order import ThreadOrder
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.exceptions import ExceptionSpec
from spec_tests.strategies.parallel_apply import ordinals
from spec_tests.strategies.tensors import device_slots


class FailingModule(nn.Module):
    """Returns its number when its turn has come, or raises what it is told to."""

    def __init__(self, number: int, turns: ThreadOrder, error: ExceptionSpec | None) -> None:
        super().__init__()
        self.number = number
        self.turns = turns
        self.error = error
        self.raised: BaseException | None = None

    def forward(self) -> int:
        """The number."""
        with self.turns.turn(self.number):
            if self.error is not None:
                self.raised = self.error.make(f"failure of module {self.number}")
                raise self.raised
        return self.number


class ChainingModule(nn.Module):
    """Raises an exception that is linked to another one.

    Args:
        link: How: ``from`` an error, ``while`` an error is handled, or ``from None``.
    """

    def __init__(self, link: str) -> None:
        super().__init__()
        self.link = link

    def forward(self) -> None:
        """No result."""
        try:
            raise LookupError("the first error")
        except LookupError as error:
            if self.link == "while":
                raise ValueError("the second error")  # noqa: B904  # the link that is meant
            raise ValueError("the second error") from {"from": error, "from None": None}[self.link]


@dataclass(frozen=True)
class ErrorData:
    """What a caller can see of an exception, but for its cause."""

    failure: Failure
    args: tuple[str, ...]
    errno: int | None


@dataclass(frozen=True)
class FailingCall:
    """One ``parallel_apply`` of modules some of which raise.

    Args:
        errors: What each module raises that does.
        slots: The device of each module.
        order: The numbers of the modules, in the order in which they end.
    """

    errors: Mapping[int, ExceptionSpec]
    slots: tuple[int, ...]
    order: tuple[int, ...]

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """The devices."""
        return {"devices": ordinals(topology, self.slots)}

    def modules(self) -> list[nn.Module]:
        """Fresh modules."""
        turns = ThreadOrder(self.order)
        count = len(self.slots)
        return [FailingModule(number, turns, self.errors.get(number)) for number in range(count)]

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """What the call raises, as data."""
        try:
            return self.apply(target, inputs["devices"])
        except Exception as error:
            return error_data(error)

    def apply(self, target: Target, devices: list[int]) -> Any:
        """What the call returns; what it raises is let through."""
        return _apply(target, self.modules(), devices)

    def __repr__(self) -> str:
        errors = "; ".join(f"module {number} raises {e}" for number, e in self.errors.items())
        devices = ", ".join(f"devices[{slot}].index" for slot in self.slots)
        count = len(self.slots)
        return (
            f"parallel_apply(modules, [()] * {count}, None, [{devices}])"
            f"  # {errors}; they end in the order {self.order}"
        )


@dataclass(frozen=True)
class ChainingCall(FailingCall):
    """One ``parallel_apply`` whose modules raise linked exceptions; ``links`` says how each."""

    links: tuple[str, ...] = ()

    def modules(self) -> list[nn.Module]:
        """Fresh modules."""
        return [ChainingModule(link) for link in self.links]


def error_and_modules(
    call: FailingCall, target: Target, topology: Topology
) -> tuple[BaseException, list[nn.Module]]:
    """The exception of a call, of whatever kind, and the modules of the call."""
    modules = call.modules()
    _ = target.parallel_apply.parallel_apply  # what the target lacks is none of its errors
    try:
        _apply(target, modules, ordinals(topology, call.slots))
    except BaseException as error:
        return error, modules
    raise AssertionError(f"no exception came of the call\n  {call!r}")


def _apply(target: Target, modules: Sequence[nn.Module], devices: list[int]) -> Any:
    inputs: list[tuple[()]] = [()] * len(modules)
    return target.parallel_apply.parallel_apply(modules, inputs, devices=devices)


def error_data(error: BaseException) -> ErrorData:
    """The exception as data."""
    args = tuple(normalised(str(each)) for each in error.args)
    return ErrorData(failure(error), args, getattr(error, "errno", None))


@st.composite
def failing_calls(
    draw: st.DrawFn,
    errors: st.SearchStrategy[ExceptionSpec],
    *,
    min_failing: int = 1,
    max_modules: int = 4,
) -> FailingCall:
    """Calls in which at least ``min_failing`` modules fail. Shrinks to the fewest modules."""
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
    """Calls whose modules all raise linked exceptions. Shrinks to one module."""
    links = draw(st.lists(st.sampled_from(["from", "while", "from None"]), min_size=1, max_size=2))
    slots = draw(device_slots(min_size=len(links), max_size=len(links)))
    return ChainingCall({}, slots, tuple(range(len(links))), tuple(links))
