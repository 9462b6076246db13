"""The facts of a call that guards name: ``ARGUMENT:FACT``, or a fact of the calling thread.

An argument has a fact if the argument or one of its members has it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from impl_tests.weekly.perturbations.calls import Call, members, modules_in, tensors_in

__all__ = ["facts_of"]

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
#: Facts of one member of an argument.
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
#: Facts of an argument and all its members.
_MEMBERS: dict[str, Callable[[Sequence[Any]], bool]] = {
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
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
#: Facts of one tensor. With ``parameter-`` or ``buffer-`` they are facts of modules.
_TENSOR: dict[str, Callable[[Tensor], bool]] = {
    "cpu": lambda tensor: tensor.device.type == "cpu",
    "meta": lambda tensor: tensor.device.type == "meta",
    "sparse": lambda tensor: tensor.layout is torch.sparse_coo,
    "compressed": lambda tensor: tensor.layout in (torch.sparse_csr, torch.sparse_csc),
    "nested": lambda tensor: tensor.is_nested,
    "complex": lambda tensor: tensor.is_complex(),
    "integer": lambda tensor: not tensor.is_floating_point() and not tensor.is_complex(),
    "bool": lambda tensor: tensor.dtype is torch.bool,
    "half": lambda tensor: tensor.dtype in (torch.float16, torch.bfloat16),
    "double": lambda tensor: tensor.dtype is torch.float64,
    "scalar": lambda tensor: tensor.dim() == 0,
    "empty-tensor": lambda tensor: _is_strided(tensor) and tensor.numel() == 0,
    "strided": lambda tensor: _is_strided(tensor) and not tensor.is_contiguous(),
    "expanded": lambda tensor: _is_strided(tensor) and 0 in tensor.stride(),
    "channels-last": lambda tensor: (
        _is_strided(tensor)
        and not tensor.is_contiguous()
        and tensor.dim() in _CHANNELS_LAST
        and tensor.is_contiguous(memory_format=_CHANNELS_LAST[tensor.dim()])
    ),
    "grad": lambda tensor: tensor.requires_grad,
    "leaf": lambda tensor: tensor.requires_grad and tensor.is_leaf,
    "non-leaf": lambda tensor: tensor.requires_grad and not tensor.is_leaf,
    "view": lambda tensor: _is_strided(tensor) and tensor._is_view(),
    "parameter": lambda tensor: isinstance(tensor, nn.Parameter),
    "subclass": lambda tensor: type(tensor) not in (Tensor, nn.Parameter),
    "other-device": lambda tensor: tensor.device.type == "sim" and tensor.device.index != 0,
    "inference-tensor": lambda tensor: tensor.is_inference(),
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
#: Facts of one module of a tree of modules.
_MODULE: dict[str, Callable[[nn.Module], object]] = {
    "module-hooks": lambda module: any(
        value for name, value in vars(module).items() if name.endswith("_hooks")
    ),
    "module-script": lambda module: isinstance(module, torch.jit.ScriptModule),
    "module-compiled": lambda module: (
        vars(module).get("_compiled_call_impl") or type(module).__name__ == "OptimizedModule"
    ),
    "module-recurrent": lambda module: isinstance(module, nn.RNNBase),
    "module-batch-norm": lambda module: isinstance(module, nn.modules.batchnorm._BatchNorm),
    "module-parametrized": lambda module: hasattr(module, "parametrizations"),
    "module-wrapper": lambda module: type(module).__name__ == "DataParallel",
    "module-lists": lambda module: isinstance(module, (nn.ParameterList, nn.ParameterDict)),
    "module-graph": lambda module: isinstance(module, torch.fx.GraphModule),
    "module-embedding": lambda module: isinstance(module, nn.Embedding),
    "module-observer": lambda module: type(module).__name__.endswith("Observer"),
    # a tensor or a function as a plain attribute
    "module-attributes": lambda module: any(
        isinstance(value, Tensor) or callable(value)
        for name, value in vars(module).items()
        if not name.startswith("_")
    ),
}


class _Tree(NamedTuple):
    """The modules of a tree, and the submodules and tensors that they name, also None."""

    modules: Sequence[nn.Module]
    children: Sequence[Any]
    parameters: Sequence[Any]
    buffers: Sequence[Any]


_TREE: dict[str, Callable[[_Tree], object]] = {
    "eval": lambda tree: not tree.modules[0].training,
    "training": lambda tree: tree.modules[0].training,
    "module-linear": lambda tree: type(tree.modules[0]) is nn.Linear,
    "children": lambda tree: len(tree.modules) > 1,
    "module-mixed-modes": lambda tree: len({module.training for module in tree.modules}) > 1,
    "module-shared-child": lambda tree: _has_repeats(_ids(tree.children)),
    "module-no-parameters": lambda tree: not _ids(tree.parameters),
    "module-frozen": lambda tree: any(
        each is not None and not each.requires_grad for each in tree.parameters
    ),
    "module-tied": lambda tree: _has_repeats(_ids(tree.parameters)),
    "module-none-members": lambda tree: any(each is None for group in tree[1:] for each in group),
}
#: Facts of a ``DataParallel``: of its devices, and of its class.
_WRAPPER: dict[str, Callable[[nn.Module, Sequence[str]], bool]] = {
    "no-devices": lambda wrapper, devices: len(devices) == 0,
    "one-device": lambda wrapper, devices: len(devices) == 1,
    "repeated": lambda wrapper, devices: _has_repeats(devices),
    "on-cpu": lambda wrapper, devices: any(text.startswith("cpu") for text in devices),
    "derived": lambda wrapper, devices: type(wrapper).__name__ != "DataParallel",
}


def facts_of(call: Call) -> frozenset[str]:
    """Return the facts of a call."""
    found = {fact for fact, holds in _THREAD.items() if holds()}
    tensors = [tensor for tensor in call.tensors() if not is_lazy(tensor)]
    ranks = [tensor.dim() for tensor in tensors]
    extents = {size for tensor in tensors for size in _shape(tensor)}
    for name, value in call.arguments.items():
        if name == "self":
            found.update(f"self:{fact}" for fact in _facts_of_wrapper(value))
            continue
        found.update(f"{name}:{fact}" for fact in _facts_of_argument(value, ranks))
        if _is_ints(value) and value and sum(value) not in extents:
            found.add(f"{name}:other-sum")
    return frozenset(found)


def _facts_of_argument(value: Any, ranks: Sequence[int]) -> Iterator[str]:
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
    yield from _holding(_MEMBERS, found)
    yield from _facts_of_tensors(tensors_in(value))
    for module in modules_in(value):
        yield from _facts_of_module(module)


def _facts_of_tensors(tensors: Sequence[Tensor]) -> Iterator[str]:
    if not tensors:
        yield "no-tensors"
    elif any(is_lazy(tensor) for tensor in tensors):
        yield "uninitialized"
    else:
        yield from {fact for tensor in tensors for fact in _holding(_TENSOR, tensor)}
        yield from _holding(_TENSORS, tensors)


def _facts_of_module(module: nn.Module) -> Iterator[str]:
    try:
        modules = list(module.modules())
        kinds = "_modules", "_parameters", "_buffers"
        tree = _Tree(modules, *(_named_by(modules, kind) for kind in kinds))
        tensors = ("parameter", list(module.parameters())), ("buffer", list(module.buffers()))
    except Exception:  # a module may be incomplete
        return
    yield from {fact for each in modules for fact in _holding(_MODULE, each)}
    yield from _holding(_TREE, tree)
    for kind, found in tensors:
        if found:
            yield from (f"{kind}-{fact}" for fact in _facts_of_tensors(found))


def _facts_of_wrapper(wrapper: nn.Module) -> Iterator[str]:
    attributes = vars(wrapper)
    if "_modules" not in attributes:
        return  # a call of __init__
    devices = [str(device) for device in attributes.get("device_ids", ())]
    yield from (fact for fact, holds in _WRAPPER.items() if holds(wrapper, devices))
    for module in modules_in(attributes["_modules"].get("module")):
        yield from _facts_of_module(module)


def _holding(facts: Mapping[str, Callable[[Any], object]], value: Any) -> list[str]:
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


def _is_named_tuple(member: Any) -> bool:
    return isinstance(member, tuple) and hasattr(member, "_fields")


def _is_packed(member: Any) -> bool:
    return _is_named_tuple(member) and type(member).__name__ == "PackedSequence"


def _is_other_object(member: Any) -> bool:
    known = Tensor, nn.Module, torch.device, torch.Stream, torch.Event
    others = tuple, list, dict, str, int, float, complex, type(None)
    is_known = isinstance(member, (*known, *others))
    return not is_known and not hasattr(member, "__dataclass_fields__")


def _devices(members: Iterable[Any]) -> list[str]:
    return [str(member) for member in members if isinstance(member, (torch.device, str))]


def _has_repeats(values: Sequence[Any]) -> bool:
    return len(set(values)) < len(values)
