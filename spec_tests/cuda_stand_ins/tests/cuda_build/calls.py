"""Calls of the primitives of ``torch._C``, valid and invalid.

A call is drawn as valid. Then, in half of the calls, some arguments are replaced by others, which
may be invalid. Calls that end the process with the real primitives are not drawn.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from spec_tests.machine.devices import Topology
from spec_tests.strategies import comm
from spec_tests.strategies.calls import StreamAt, build
from spec_tests.strategies.tensors import DTYPES, TensorSpec, shapes, sparse_specs, tensor_specs

#: Slot of a device; None is the CPU.
SLOTS = (0, 1, 2, None)


@dataclass(frozen=True)
class PrimitiveCall:
    """A call of ``torch._C.NAME`` in a grad mode, while a device is current."""

    name: str
    arguments: tuple[object, ...]
    grad_mode: str
    current_device: int

    def __repr__(self) -> str:
        arguments = ", ".join(map(repr, self.arguments))
        where = f"{self.grad_mode}, device {self.current_device} is current"
        return f"torch._C.{self.name}({arguments})  # {where}"


@dataclass(frozen=True)
class Variant:
    """A tensor of another class, without memory or of another layout."""

    kind: str
    spec: TensorSpec

    def build(self, topology: Topology) -> object:
        """Return the tensor."""
        return VARIANTS[self.kind](self.spec.build(topology))


class Subclass(torch.Tensor):
    """A subclass without methods of its own."""


VARIANTS: dict[str, Callable[[torch.Tensor], object]] = {
    "parameter": lambda tensor: torch.nn.Parameter(tensor, tensor.requires_grad),
    "subclass": lambda tensor: tensor.as_subclass(Subclass),
    "detached": lambda tensor: tensor.detach(),
    "on meta": lambda tensor: tensor.to("meta"),
    "nested": lambda tensor: torch.nested.nested_tensor([torch.ones(2)]).to(tensor.device),
}


@dataclass(frozen=True)
class Collection:
    """An iterable object of ``members``."""

    kind: str
    members: list[object]

    def build(self, topology: Topology) -> object:
        """Return the object."""
        return COLLECTIONS[self.kind](build(self.members, topology))


COLLECTIONS: dict[str, Callable[[list[Any]], object]] = {
    "tuple": tuple,
    "dict values": lambda members: dict(enumerate(members)).values(),
    "generator": lambda members: (member for member in members),
    "string": lambda members: "0" * len(members),
    "range": lambda members: range(len(members)),
}
NUMBERS = st.sampled_from(
    [
        *(0, 1, -1, 2, -2, 3, -3, 7, 8, 127, 128, 255, 256, 2**31, 2**63 - 1, 2**63, -(2**61)),
        *(True, None, 1.0, "1", np.int64(1), torch.device("cuda:1")),
    ]
)
any_tensor = st.one_of(
    tensor_specs(slots=SLOTS),
    tensor_specs(slots=SLOTS, shape=shapes(min_dims=0, max_dims=2)),
    sparse_specs(slots=SLOTS),
    st.builds(Variant, st.sampled_from(sorted(VARIANTS)), tensor_specs(slots=SLOTS)),
    st.sampled_from([None, 3, "text"]),
)
ordinal = st.sampled_from([0, 1, 2, 3])
stream_list = st.lists(st.one_of(st.none(), st.builds(StreamAt, ordinal), st.just(3)), max_size=4)


def _lists(members: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(members, max_size=4)


def _collected(draw: st.DrawFn, value: object) -> object:
    """Return the list ``value``, or sometimes another collection of its members."""
    if isinstance(value, list) and draw(st.integers(0, 9)) == 9:
        return Collection(draw(st.sampled_from(sorted(COLLECTIONS))), value)
    return value


def _ordinals(draw: st.DrawFn, count: int) -> list[int]:
    return draw(st.lists(ordinal, min_size=count, max_size=count))


def _scatter(draw: st.DrawFn) -> list[object]:
    drawn: Any = draw(comm.scatter_calls(dtypes=DTYPES)).arguments
    devices = _ordinals(draw, len(drawn["devices"]))
    streams = draw(
        st.one_of(st.none(), st.lists(st.none() | st.builds(StreamAt, ordinal), max_size=3))
    )
    if streams is not None:
        pairs = zip(streams, devices, strict=False)
        streams = [stream and StreamAt(device) for stream, device in pairs]
    return [drawn["tensor"], devices, drawn["chunk_sizes"], drawn["dim"], streams]


def _scatter_out(draw: st.DrawFn) -> list[object]:
    drawn = draw(comm.scatter_out_calls(dtypes=DTYPES, grads=(False, True))).arguments
    return [drawn["tensor"], drawn["out"], drawn["dim"], None]


def _broadcast(draw: st.DrawFn) -> list[object]:
    tensor = draw(st.one_of(tensor_specs(slots=SLOTS), sparse_specs(slots=SLOTS)))
    return [tensor, _ordinals(draw, draw(st.integers(0, 4)))]


def _broadcast_out(draw: st.DrawFn) -> list[object]:
    drawn = draw(comm.broadcast_out_calls(dtypes=DTYPES, grads=(False, True))).arguments
    return [drawn["tensor"], drawn["out"]]


def _broadcast_coalesced(draw: st.DrawFn) -> list[object]:
    first, *others = _ordinals(draw, draw(st.integers(1, 4)))
    spec = st.one_of(tensor_specs(slots=(first,)), sparse_specs(slots=(first,)))
    tensors = draw(st.lists(spec, max_size=5))
    return [tensors, [first, *others], draw(st.sampled_from([1 << 20, 64, 16, 1, 0]))]


def _gather(draw: st.DrawFn) -> list[object]:
    tensors, dim, _ = draw(comm.chunk_lists(dtypes=DTYPES))
    return [tensors, dim, draw(st.sampled_from([0, 1, -1, None]))]


def _gather_out(draw: st.DrawFn) -> list[object]:
    drawn = draw(comm.gather_out_calls(dtypes=DTYPES)).arguments
    return [drawn["tensors"], drawn["out"], drawn["dim"]]


#: For each primitive: the function that draws valid arguments, and for each argument the values
#: that may replace it.
_tensors, _numbers = _lists(any_tensor), _lists(NUMBERS)
_dims, _streams = NUMBERS, st.one_of(_lists(st.none() | st.builds(StreamAt, ordinal)), stream_list)
PRIMITIVES: dict[str, tuple[Callable[[st.DrawFn], list[object]], list[Any]]] = {
    "_broadcast": (_broadcast, [any_tensor, _numbers]),
    "_broadcast_out": (_broadcast_out, [any_tensor, _tensors]),
    "_broadcast_coalesced": (_broadcast_coalesced, [_tensors, _numbers, NUMBERS]),
    "_scatter": (_scatter, [any_tensor, _numbers, _numbers, _dims, _streams]),
    "_scatter_out": (_scatter_out, [any_tensor, _tensors, _dims, _streams]),
    "_gather": (_gather, [_tensors, _dims, NUMBERS]),
    "_gather_out": (_gather_out, [_tensors, any_tensor, _dims]),
}


def _changed(draw: st.DrawFn, member: object) -> object:
    """Return ``member``, or sometimes a tensor of another shape or device, or another ordinal."""
    if not draw(st.booleans()):
        return member
    if isinstance(member, int):
        return draw(st.sampled_from([-1, 1, 7, 2, 0]))
    if not isinstance(member, TensorSpec):
        return draw(any_tensor)
    wider = tuple(size + 1 for size in member.shape)
    shape = draw(st.sampled_from([member.shape, wider, member.shape[1:], (1, *member.shape)]))
    return replace(member, shape=shape, slot=draw(st.sampled_from([member.slot, *SLOTS])))


@st.composite
def calls(draw: st.DrawFn, name: str) -> PrimitiveCall:
    """Draw a call of the primitive ``name``. Shrinks to a valid call."""
    draw_valid, replacements = PRIMITIVES[name]
    arguments = draw_valid(draw)
    positions = st.lists(st.integers(0, len(arguments) - 1), max_size=2, unique=True)
    for position in draw(st.one_of(st.just([]), positions)):
        argument, replacement = arguments[position], replacements[position]
        if isinstance(argument, list) and draw(st.booleans()):
            arguments[position] = [_changed(draw, member) for member in argument]
        else:
            arguments[position] = draw(replacement)
    grad_mode = draw(st.sampled_from(["enable_grad", "no_grad", "inference_mode"]))
    arguments = [_collected(draw, argument) for argument in arguments]
    return PrimitiveCall(name, tuple(arguments), grad_mode, draw(st.sampled_from([0, 1])))
