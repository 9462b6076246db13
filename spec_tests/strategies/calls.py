"""Descriptions of calls and of devices. Hypothesis draws them before it knows the devices.

`build` replaces each description of an argument by a new object, also inside lists, tuples and
mappings. Other values are passed unchanged. Each run of a call builds its arguments again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

import torch
from hypothesis import strategies as st

from spec_tests.machine.devices import Topology
from spec_tests.machine.target import Target


@runtime_checkable
class Buildable(Protocol):
    """A description of an argument. ``build`` makes the argument on given devices."""

    def build(self, topology: Topology) -> object:
        """Return a new argument on the devices of ``topology``."""


def build(argument: object, topology: Topology) -> Any:
    """Return ``argument`` with each description replaced by the object that it describes."""
    if isinstance(argument, Buildable):
        return argument.build(topology)
    if isinstance(argument, (list, tuple)):
        built: list[Any] = []
        for each in argument:
            built.append(each.of(built) if isinstance(each, Again) else build(each, topology))
        return type(argument)(built)
    if isinstance(argument, Mapping):
        return {key: build(member, topology) for key, member in argument.items()}
    return argument


@dataclass(frozen=True)
class Again:
    """A description of a second use of a member of the same list or tuple.

    Args:
        index: The position of the member, before this one.
        view: The code after the member that makes a view of its memory; empty for the same object.
    """

    index: int
    view: str = ""

    def of(self, built: Sequence[Any]) -> Any:
        """Return the member of ``built``, or its view."""
        return eval(f"member{self.view}", {"member": built[self.index]})


#: Code that makes a tensor of the same shape: the same object, and another without a gradient.
SAME_SHAPE = ("", ".detach()")


@st.composite
def repeated(
    draw: st.DrawFn, members: Sequence[object], views: Sequence[str] = SAME_SHAPE
) -> list[object]:
    """Draw ``members``, followed by up to two of them `Again`. Shrinks to ``members``."""
    if not members:
        return []
    index = st.integers(0, len(members) - 1)
    again = st.builds(Again, index, st.sampled_from(views))
    return [*members, *draw(st.lists(again, max_size=2))]


def code(argument: object) -> str:
    """Return the code that makes the object which ``argument`` describes."""
    if not isinstance(argument, (list, tuple)) or type(argument) not in (list, tuple):
        return repr(argument)
    uses = {each.index for each in argument if isinstance(each, Again)}
    texts = [
        f"x{each.index}{each.view}"
        if isinstance(each, Again)
        else f"{f'x{index} := ' if index in uses else ''}{code(each)}"
        for index, each in enumerate(argument)
    ]
    text = ", ".join(f"({each})" if ":=" in each else each for each in texts)
    comma = "," if len(texts) == 1 else ""
    return f"[{text}]" if isinstance(argument, list) else f"({text}{comma})"


@dataclass(frozen=True)
class DeviceAt:
    """A description of a device argument.

    Args:
        slot: The number of the device in the topology; None for the CPU.
        spelling: ``device``, ``ordinal`` or ``text``.
    """

    slot: int | None
    spelling: str = "device"

    def build(self, topology: Topology) -> object:
        """Return the device as a ``torch.device``, an ordinal or a text."""
        device = topology.device(self.slot)
        spellings = {"device": device, "ordinal": device.index, "text": str(device)}
        return spellings[self.spelling]

    def __repr__(self) -> str:
        name = "torch.device('cpu')" if self.slot is None else f"devices[{self.slot}]"
        return {"device": name, "ordinal": f"{name}.index", "text": f"str({name})"}[self.spelling]


@dataclass(frozen=True)
class DistinctDevices:
    """A description of a list of devices without repeats.

    Args:
        slots: The numbers of the devices in the topology.
        spelling: ``device``, ``ordinal`` or ``text``.
    """

    slots: tuple[int, ...]
    spelling: str = "device"

    def build(self, topology: Topology) -> list[Any]:
        """Return the devices without repeats. Two of ``slots`` may be the same device."""
        return list(dict.fromkeys(build(self._all(), topology)))

    def _all(self) -> list[DeviceAt]:
        return [DeviceAt(slot, self.spelling) for slot in self.slots]

    def __repr__(self) -> str:
        return f"list(dict.fromkeys({self._all()!r}))"


@dataclass(frozen=True)
class StreamAt:
    """A description of a new stream on device number ``slot`` of the topology."""

    slot: int

    def build(self, topology: Topology) -> torch.Stream:
        """Return a new stream: a ``torch.cuda.Stream`` on CUDA, for example."""
        module = torch.get_device_module(topology.accelerator)
        stream: torch.Stream = getattr(module, "Stream", torch.Stream)(
            device=topology.device(self.slot)
        )
        return stream

    def __repr__(self) -> str:
        return f"torch.Stream(devices[{self.slot}])"


_Arguments = ParamSpec("_Arguments")
_Call = TypeVar("_Call")


def on_any_device(
    calls: Callable[_Arguments, st.SearchStrategy[_Call]],
) -> Callable[_Arguments, st.SearchStrategy[_Call]]:
    """Make a strategy draw ``current`` of its calls, too. Shrinks to the caller's."""

    @wraps(calls)
    def drawn(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> st.SearchStrategy[_Call]:
        slots = st.sampled_from([None, 1, 2, 3])
        return st.builds(
            lambda call, slot: replace(call, current=slot), calls(*args, **kwargs), slots
        )

    return drawn


def while_current(slot: int | None) -> str:
    """Return a comment about the current device for the code of a call."""
    return f"  # while devices[{slot}] is current" if slot is not None else ""


@dataclass(frozen=True)
class KeywordCall:
    """A call of a function with keyword arguments.

    Args:
        function: The submodule and name of the function, such as ``comm.scatter``. A private name
            begins with an underscore.
        arguments: Name of a parameter -> the argument or its description.
        current: The number of the current device in the topology; None for the caller's.
    """

    function: str
    arguments: Mapping[str, object]
    current: int | None = None

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """Return the keyword arguments."""
        return {name: build(value, topology) for name, value in self.arguments.items()}

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return the result of the function."""
        submodule, name = self.function.split(".")
        part = getattr(target, submodule)
        function = part.private(name) if name.startswith("_") else getattr(part, name)
        return function(**inputs)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={code(value)}" for name, value in self.arguments.items())
        return f"{self.function}({arguments}){while_current(self.current)}"


@dataclass(frozen=True)
class ApplyCall:
    """A call of the method ``apply`` of an autograd Function.

    Args:
        function: The name of the Function in the submodule ``functions``.
        settings: The arguments before the tensors.
        tensors: Descriptions of the tensors.
        current: The number of the current device in the topology; None for the caller's.
    """

    function: str
    settings: tuple[object, ...]
    tensors: tuple[object, ...]
    current: int | None = None

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """Return the settings and the tensors."""
        return {
            "settings": build(self.settings, topology),
            "tensors": build(self.tensors, topology),
        }

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """Return the result of ``apply``."""
        function = getattr(target.functions, self.function)
        return function.apply(*inputs["settings"], *inputs["tensors"])

    def __repr__(self) -> str:
        settings = ", ".join(map(repr, self.settings))
        call = f"functions.{self.function}.apply({settings}, *{code(self.tensors)})"
        return f"{call}{while_current(self.current)}"


#: The spellings of `DeviceAt`.
SPELLINGS = ("device", "ordinal", "text")


def any_device(slots: Sequence[int | None] = range(4)) -> st.SearchStrategy[DeviceAt]:
    """Draw descriptions of the devices with numbers ``slots``. Shrinks to the first number."""
    devices = st.builds(DeviceAt, st.sampled_from(slots), st.sampled_from(SPELLINGS))
    return devices.filter(lambda each: each.slot is not None or each.spelling != "ordinal")


def device_lists(
    *, min_size: int = 1, max_size: int = 4, slots: Sequence[int | None] = range(4)
) -> st.SearchStrategy[list[DeviceAt]]:
    """Draw descriptions of devices, possibly repeated. Shrinks to the first device only."""
    return st.lists(any_device(slots), min_size=min_size, max_size=max_size)


def distinct_devices() -> st.SearchStrategy[DistinctDevices]:
    """Draw descriptions of lists of devices without repeats. Shrinks to two devices.

    A list has two to four devices, but fewer if several numbers are the same device.
    """
    return st.permutations(range(4)).flatmap(
        lambda slots: st.builds(
            DistinctDevices,
            st.integers(2, 4).map(lambda count: tuple(slots[:count])),
            st.sampled_from(SPELLINGS),
        )
    )
