"""The facts of a call that guards name: ``ARGUMENT:FACT``, or a fact of the calling thread.

Many facts are the names of classes, dtypes, layouts and types of devices: an argument has the fact
``tuple`` if it is a tuple, and ``has-Embedding`` if one of its members is an Embedding. Facts of
the parameters and buffers of modules begin with ``parameter-`` and ``buffer-``.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from impl_tests.weekly.perturbations.calls import BoundCall, members, modules_in, tensors_in

__all__ = ["facts_of"]

#: Facts of the calling thread.
_THREAD: dict[str, Callable[[], bool]] = {
    "no-grad": lambda: not torch.is_grad_enabled(),
    "autocast": lambda: any(map(torch.is_autocast_enabled, _device_types())),
    "other-thread": lambda: threading.current_thread() is not threading.main_thread(),
    "modes": lambda: bool(
        torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()
    ),
    "no-accelerator": lambda: not _has_accelerator(),
    "other-device": lambda: _is_usable() and torch.accelerator.current_device_index() != 0,
    "other-stream": lambda: _is_usable() and torch.accelerator.current_stream().stream_id != 0,
}
#: Facts of a number. A sequence has the fact ``has-negative`` if a member is negative.
_NUMBER: dict[str, Callable[[int], bool]] = {
    "negative": lambda value: value < 0,
    "zero": lambda value: value == 0,
}
_SEQUENCE: dict[str, Callable[[Sequence[Any]], bool]] = {
    "empty": lambda members: not members,
    "one": lambda members: len(members) == 1,
    "several": lambda members: len(members) > 1,
    "ragged": lambda members: len(_lengths(members)) > 1,
    "has-empty": lambda members: 0 in _lengths(members),
}
#: Facts of the texts and devices among an argument and its members.
_DEVICES: dict[str, Callable[[Sequence[str]], bool]] = {
    "on-cpu": lambda texts: any(text.startswith("cpu") for text in texts),
    "no-index": lambda texts: any(":" not in text and text[:3] != "cpu" for text in texts),
}
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
_TENSOR: dict[str, Callable[[Tensor], bool]] = {
    "complex": Tensor.is_complex,
    "integer": lambda tensor: not tensor.is_floating_point() and not tensor.is_complex(),
    "scalar": lambda tensor: tensor.dim() == 0,
    "empty-tensor": lambda tensor: _is_strided(tensor) and tensor.numel() == 0,
    "not-contiguous": lambda tensor: _is_strided(tensor) and not tensor.is_contiguous(),
    "channels-last": lambda tensor: (
        _is_strided(tensor)
        and not tensor.is_contiguous()
        and tensor.dim() in _CHANNELS_LAST
        and tensor.is_contiguous(memory_format=_CHANNELS_LAST[tensor.dim()])
    ),
    "grad": lambda tensor: tensor.requires_grad,
    "frozen": lambda tensor: not tensor.requires_grad,
    "non-leaf": lambda tensor: tensor.requires_grad and not tensor.is_leaf,
    "view": lambda tensor: _is_strided(tensor) and tensor._is_view(),
    "subclass": lambda tensor: type(tensor) not in (Tensor, nn.Parameter),
    "other-device": lambda tensor: tensor.device.type == "sim" and tensor.device.index != 0,
}
#: Facts of all tensors of an argument.
_TENSORS: dict[str, Callable[[Sequence[Tensor]], bool]] = {
    "mixed-dtypes": lambda tensors: len({tensor.dtype for tensor in tensors}) > 1,
    "mixed-devices": lambda tensors: len({tensor.device for tensor in tensors}) > 1,
    "mixed-layouts": lambda tensors: len({tensor.layout for tensor in tensors}) > 1,
    "mixed-ranks": lambda tensors: len({tensor.dim() for tensor in tensors}) > 1,
    "mixed-shapes": lambda tensors: (
        len({tensor.dim() for tensor in tensors}) == 1
        and len({_shape(tensor) for tensor in tensors}) > 1
    ),
    "same-tensor": lambda tensors: _has_repeats(_ids(tensors)),
    "one-device": lambda tensors: (
        len(tensors) > 1 and len({tensor.device for tensor in tensors}) == 1
    ),
}
#: Facts of a module and its submodules, which are also those of an argument.
_MODULES: dict[str, Callable[[Sequence[nn.Module]], object]] = {
    "eval": lambda modules: not modules[0].training,
    "training": lambda modules: modules[0].training,
    "mixed-modes": lambda modules: len({each.training for each in modules}) > 1,
    "children": lambda modules: len(modules) > 1,
    "hooks": lambda modules: any(
        value for each in modules for name, value in vars(each).items() if name.endswith("_hooks")
    ),
    "compiled": lambda modules: any(
        vars(each).get("_compiled_call_impl") or type(each).__name__ == "OptimizedModule"
        for each in modules
    ),
    # a tensor or a function as a plain attribute
    "attributes": lambda modules: any(
        isinstance(value, Tensor) or callable(value)
        for each in modules
        for name, value in vars(each).items()
        if not name.startswith("_")
    ),
    "shared-child": lambda modules: _has_repeats(_ids(_named_by(modules, "_modules"))),
    "no-parameters": lambda modules: not _ids(_named_by(modules, "_parameters")),
    "tied": lambda modules: _has_repeats(_ids(_named_by(modules, "_parameters"))),
    "none-members": lambda modules: any(
        each is None
        for kind in ("_modules", "_parameters", "_buffers")
        for each in _named_by(modules, kind)
    ),
}


def facts_of(call: BoundCall) -> frozenset[str]:
    """Return the facts of a call."""
    found = {fact for fact, holds in _THREAD.items() if holds()}
    tensors = [tensor for tensor in call.tensors() if not is_lazy(tensor)]
    ranks = [tensor.dim() for tensor in tensors]
    extents = {size for tensor in tensors for size in _shape(tensor)}
    for name, value in call.arguments.items():
        facts = _of_wrapper(value) if name == "self" else _of_argument(value)
        found.update(f"{name}:{fact}" for fact in facts)
        if type(value) is int and ranks and not -min(ranks) <= value < min(ranks):
            found.add(f"{name}:out-of-range")
        if _is_ints(value) and value and sum(value) not in extents:
            found.add(f"{name}:other-sum")
    return frozenset(found)


def _of_argument(value: Any) -> Iterator[str]:
    yield str(value) if isinstance(value, (bool, type(None))) else type(value).__name__
    if type(value) is int:
        yield from _holding(_NUMBER, value)
    elif isinstance(value, (Sequence, Mapping)) and not isinstance(value, str):
        inner = list(value.values()) if isinstance(value, Mapping) else list(value)
        yield from _holding(_SEQUENCE, inner)
        numbers = [member for member in inner if type(member) is int]
        yield from {f"has-{fact}" for number in numbers for fact in _holding(_NUMBER, number)}
    found = list(members(value))
    yield from {f"has-{type(member).__name__}" for member in found[1:]}
    texts = [str(member) for member in found if isinstance(member, (torch.device, str))]
    yield from _holding(_DEVICES, texts)
    if _has_repeats(texts) or _has_repeats([each for each in found[1:] if isinstance(each, int)]):
        yield "repeated"
    yield from _of_tensors(tensors_in(value))
    for module in modules_in(value):
        yield from _of_module(module)


def _of_tensors(tensors: Sequence[Tensor]) -> Iterator[str]:
    if not tensors:
        yield "no-tensors"
    elif not any(is_lazy(tensor) for tensor in tensors):
        yield from {fact for tensor in tensors for fact in _of_tensor(tensor)}
        yield from _holding(_TENSORS, tensors)


def _of_tensor(tensor: Tensor) -> Iterator[str]:
    yield from (tensor.device.type, type(tensor).__name__)
    yield from (str(each).removeprefix("torch.") for each in (tensor.dtype, tensor.layout))
    yield from _holding(_TENSOR, tensor)


def _of_module(module: nn.Module) -> Iterator[str]:
    yield type(module).__name__
    try:
        modules = list(module.modules())
        yield from _holding(_MODULES, modules)
        tensors = ("parameter", list(module.parameters())), ("buffer", list(module.buffers()))
    except Exception:  # a module may be incomplete
        return
    classes = {base for each in modules for base in type(each).__mro__}
    yield from {f"has-{each.__name__}" for each in classes}
    for kind, found in tensors:
        if found:
            yield from (f"{kind}-{fact}" for fact in _of_tensors(found))


def _of_wrapper(wrapper: nn.Module) -> Iterator[str]:
    if "_modules" in vars(wrapper):  # else it is a call of __init__
        yield type(wrapper).__name__
        yield from _of_argument(vars(wrapper).get("device_ids"))
        yield from chain.from_iterable(map(_of_module, modules_in(wrapper._modules.get("module"))))


def _holding(facts: Mapping[str, Callable[..., object]], value: Any) -> list[str]:
    return [fact for fact, holds in facts.items() if holds(value)]


def _named_by(modules: Iterable[nn.Module], kind: str) -> list[Any]:
    """Return the submodules, parameters or buffers that modules name, also those that are None."""
    # A script module has no such entry in its dictionary, but an attribute.
    return [member for module in modules for member in getattr(module, kind).values()]


def _ids(values: Iterable[object]) -> list[int]:
    return [id(value) for value in values if value is not None]


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


def _is_strided(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested


def _shape(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape, which is empty for nested tensors."""
    return () if tensor.is_nested else tuple(tensor.shape)


def _is_ints(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(type(member) is int for member in value)


def _lengths(members: Iterable[Any]) -> set[int]:
    return {len(member) for member in members if isinstance(member, (list, tuple))}


def _has_repeats(values: Sequence[Any]) -> bool:
    return len(set(values)) < len(values)
