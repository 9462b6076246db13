"""The facts of a call that guards name: ``ARGUMENT:FACT`` or a fact of the calling thread.

An argument has a fact if the argument or one of its members has it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from impl_tests.wrong import module_facts, tensor_facts
from impl_tests.wrong.calls import Call, members, modules_in, tensors_in
from impl_tests.wrong.module_facts import DERIVED, WRAPPER

__all__ = ["ARGUMENT", "CALL", "facts_of"]

#: Facts of the calling thread.
_THREAD: dict[str, Callable[[], bool]] = {
    "no-grad": lambda: not torch.is_grad_enabled(),
    "inference": torch.is_inference_mode_enabled,
    "autocast": lambda: any(map(torch.is_autocast_enabled, _device_types())),
    "profiler": torch._C._autograd._profiler_enabled,
    "other-thread": lambda: threading.current_thread() is not threading.main_thread(),
    "modes": lambda: bool(
        torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()
    ),
    "no-accelerator": lambda: not _has_accelerator(),
    "other-device": lambda: _is_usable() and torch.accelerator.current_device_index() != 0,
    "other-stream": lambda: _is_usable() and torch.accelerator.current_stream().stream_id != 0,
}
#: Facts of numbers. A sequence has the fact ``has-negative`` if a member is negative.
_NUMBER: dict[str, Callable[[int], bool]] = {
    "negative": lambda value: value < 0,
    "zero": lambda value: value == 0,
}
_SEQUENCE: dict[str, Callable[[Sequence[Any]], bool]] = {
    "empty": lambda members: not members,
    "one": lambda members: len(members) == 1,
    "several": lambda members: len(members) > 1,
    "has-none": lambda members: any(member is None for member in members),
    "ragged": lambda members: len(_lengths(members)) > 1,
    "has-empty": lambda members: 0 in _lengths(members),
}
#: Facts of the members of an argument.
_MEMBER: dict[str, Callable[[Any], bool]] = {
    "named-tuple": lambda member: _is_named_tuple(member) and not _is_packed(member),
    "packed": lambda member: _is_packed(member),
    "empty-named-tuple": lambda member: _is_named_tuple(member) and not member,
    "has-tuple": lambda member: isinstance(member, tuple) and not _is_named_tuple(member),
    "has-list": lambda member: isinstance(member, list),
    "has-dict": lambda member: type(member) is dict,
    "has-mapping": lambda member: isinstance(member, dict) and type(member) is not dict,
    "dataclass": lambda member: hasattr(member, "__dataclass_fields__"),
    "has-text": lambda member: isinstance(member, str),
    "has-number": lambda member: isinstance(member, (int, float, complex)),
    "has-object": lambda member: _is_other_object(member),
}
_DEVICE: dict[str, Callable[[Sequence[Any]], bool]] = {
    "text": lambda members: any(isinstance(member, str) for member in members),
    "device": lambda members: any(isinstance(member, torch.device) for member in members),
    "on-cpu": lambda members: any(text.startswith("cpu") for text in _devices(members)),
    "no-index": lambda members: any(
        ":" not in text and not text.startswith("cpu") for text in _devices(members)
    ),
    "repeated": lambda members: (
        _has_repeats(_devices(members))
        or _has_repeats([member for member in members[1:] if isinstance(member, int)])
    ),
    "streams": lambda members: any(isinstance(member, torch.Stream) for member in members),
}
#: The facts of a call as a whole.
CALL = frozenset({*_THREAD, "unlike-lengths"})
#: The facts of an argument.
ARGUMENT = frozenset(
    {
        *_NUMBER,
        *(f"has-{fact}" for fact in _NUMBER),
        *_SEQUENCE,
        *_MEMBER,
        *_DEVICE,
        *tensor_facts.NAMES,
        *module_facts.NAMES,
        *WRAPPER,
        DERIVED,
        *("none", "true", "false", "int", "out-of-range", "other-sum", "tuple", "list"),
        "iterator",
    }
)


def facts_of(call: Call) -> frozenset[str]:
    """Return the facts of a call."""
    found = {fact for fact, holds in _THREAD.items() if holds()}
    tensors = [tensor for tensor in call.tensors() if not is_lazy(tensor)]
    ranks = [tensor.dim() for tensor in tensors]
    extents = {size for tensor in tensors for size in tensor_facts.shape(tensor)}
    for name, value in call.arguments.items():
        if name == "self":
            found.update(f"self:{fact}" for fact in module_facts.facts_of_wrapper(value))
        else:
            found.update(f"{name}:{fact}" for fact in _argument_facts(value, ranks))
            if _is_ints(value) and value and sum(value) not in extents:
                found.add(f"{name}:other-sum")
    lengths = {
        len(value)
        for name, value in call.arguments.items()
        if isinstance(value, (list, tuple)) and name not in ("inputs", "kwargs")
    }
    if len(lengths) > 1:
        found.add("unlike-lengths")
    return frozenset(found)


def _argument_facts(value: Any, ranks: Sequence[int]) -> Iterator[str]:
    if value is None:
        yield "none"
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, int):
        yield "int"
        yield from _holding(_NUMBER, value)
        if ranks and not -min(ranks) <= value < min(ranks):
            yield "out-of-range"
    elif isinstance(value, (Sequence, Mapping)) and not isinstance(value, str):
        inner = list(value.values()) if isinstance(value, Mapping) else list(value)
        yield from _holding(_SEQUENCE, inner)
        numbers = [n for n in inner if isinstance(n, int) and not isinstance(n, bool)]
        yield from {f"has-{fact}" for number in numbers for fact in _holding(_NUMBER, number)}
    if type(value) in (tuple, list):
        yield type(value).__name__
    elif callable(getattr(value, "__next__", None)):
        yield "iterator"
    found = list(members(value))
    yield from {fact for member in found[1:] for fact in _holding(_MEMBER, member)}
    yield from _holding(_DEVICE, found)
    yield from tensor_facts.facts_of_tensors(tensors_in(value))
    for module in modules_in(value):
        yield from module_facts.facts_of_module(module)


def _holding(facts: Mapping[str, Callable[[Any], bool]], value: Any) -> list[str]:
    return [fact for fact, holds in facts.items() if holds(value)]


def _device_types() -> list[str]:
    accelerator = torch.accelerator.current_accelerator()
    return ["cpu"] if accelerator is None else ["cpu", accelerator.type]


def _has_accelerator() -> bool:
    return torch.accelerator.current_accelerator(check_available=True) is not None


def _is_usable() -> bool:
    """Return whether this process may use the accelerator: not after a fork."""
    try:
        return _has_accelerator() and torch.accelerator.current_device_index() >= 0
    except RuntimeError:
        return False


def _is_ints(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(type(member) is int for member in value)


def _lengths(members: Iterable[Any]) -> set[int]:
    return {len(member) for member in members if isinstance(member, (list, tuple))}


def _is_named_tuple(member: Any) -> bool:
    return isinstance(member, tuple) and hasattr(member, "_fields")


def _is_packed(member: Any) -> bool:
    return _is_named_tuple(member) and type(member).__name__ == "PackedSequence"


def _is_other_object(member: Any) -> bool:
    known = Tensor, torch.nn.Module, torch.device, torch.Stream, torch.Event
    others = tuple, list, dict, str, int, float, complex, type(None)
    is_known = isinstance(member, (*known, *others))
    return not is_known and not hasattr(member, "__dataclass_fields__")


def _devices(members: Iterable[Any]) -> list[str]:
    return [str(member) for member in members if isinstance(member, (torch.device, str))]


def _has_repeats(values: Sequence[Any]) -> bool:
    return len(set(values)) < len(values)
