"""Calls as data: their arguments are described before the devices are known.

A description with a ``build`` method is made anew for every run; lists, tuples and dictionaries
are searched for such descriptions; anything else is passed as it stands.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology


@runtime_checkable
class Buildable(Protocol):
    """A description of an argument."""

    def build(self, topology: Topology) -> object:
        """The argument, made for the devices of ``topology``."""


def build(argument: object, topology: Topology) -> Any:
    """``argument`` with every description in it made."""
    if isinstance(argument, Buildable):
        return argument.build(topology)
    if isinstance(argument, (list, tuple)):
        return type(argument)(build(member, topology) for member in argument)
    if isinstance(argument, Mapping):
        return {key: build(member, topology) for key, member in argument.items()}
    return argument


@dataclass(frozen=True)
class DeviceAt:
    """The device of a slot, as one of its spellings; slot None is the CPU."""

    slot: int | None
    spelling: str = "device"

    def build(self, topology: Topology) -> object:
        """A ``torch.device``, or its ordinal, or its text, or only its type."""
        device = topology.device(self.slot)
        spellings = {"device": device, "ordinal": device.index, "text": str(device)}
        return spellings[self.spelling]

    def __repr__(self) -> str:
        name = "torch.device('cpu')" if self.slot is None else f"devices[{self.slot}]"
        return {"device": name, "ordinal": f"{name}.index", "text": f"str({name})"}[self.spelling]


@dataclass(frozen=True)
class DistinctDevices:
    """The devices of some slots without repeats, in the order of their first slot."""

    slots: tuple[int, ...]

    def build(self, topology: Topology) -> list[torch.device]:
        """Devices that differ pairwise; fewer than slots where the topology repeats devices."""
        return list(dict.fromkeys(topology.take(self.slots)))

    def __repr__(self) -> str:
        return f"list(dict.fromkeys([{', '.join(f'devices[{slot}]' for slot in self.slots)}]))"


@dataclass(frozen=True)
class StreamAt:
    """A new stream on the device of a slot."""

    slot: int

    def build(self, topology: Topology) -> torch.Stream:
        """The stream, of the accelerator's own stream class if it has one."""
        module = torch.get_device_module(topology.accelerator)
        stream: torch.Stream = getattr(module, "Stream", torch.Stream)(
            device=topology.device(self.slot)
        )
        return stream

    def __repr__(self) -> str:
        return f"torch.Stream(devices[{self.slot}])"


@dataclass(frozen=True)
class PublicCall:
    """One call of a public function, all arguments by keyword.

    Args:
        function: Submodule and name: ``comm.scatter``.
        arguments: By parameter; descriptions are built anew for every run.
    """

    function: str
    arguments: Mapping[str, object]

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """The arguments by name."""
        return {name: build(value, topology) for name, value in self.arguments.items()}

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """What the function returns."""
        part, name = self.function.split(".")
        return getattr(getattr(target, part), name)(**inputs)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.function}({arguments})"


@dataclass(frozen=True, repr=False)
class PrivateCall(PublicCall):
    """One call of a function whose name begins with an underscore."""

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """What the function returns."""
        part, name = self.function.split(".")
        return getattr(target, part).private(name)(**inputs)


@dataclass(frozen=True)
class StreamedCall(PublicCall):
    """A call with ``streams``, by a caller that orders them with its own work, as it must."""

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """What the function returns, once the streams have done their work."""
        streams = [stream for stream in inputs["streams"] if stream is not None]
        for stream in streams:
            stream.wait_stream(torch.accelerator.current_stream(stream.device))
        try:
            return super().run(target, inputs)
        finally:
            for stream in streams:
                stream.synchronize()


@dataclass(frozen=True)
class ApplyCall:
    """One ``apply`` of an autograd Function.

    Args:
        function: Its name in the submodule ``functions``.
        settings: The arguments before the tensors.
        tensors: Descriptions of the tensors.
    """

    function: str
    settings: tuple[object, ...]
    tensors: tuple[object, ...]

    def inputs(self, topology: Topology) -> dict[str, Any]:
        """The settings and the tensors."""
        return {
            "settings": build(self.settings, topology),
            "tensors": build(self.tensors, topology),
        }

    def run(self, target: Target, inputs: dict[str, Any]) -> Any:
        """What ``apply`` returns."""
        function = getattr(target.functions, self.function)
        return function.apply(*inputs["settings"], *inputs["tensors"])

    def __repr__(self) -> str:
        arguments = ", ".join(map(repr, (*self.settings, *self.tensors)))
        return f"functions.{self.function}.apply({arguments})"
