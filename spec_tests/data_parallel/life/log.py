"""Hooks of modules that write their arguments to a log."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

#: Thread, group and entry of each call of a hook since the last `take`. The entry None stands
#: before each group.
_entries: list[tuple[int, object, tuple[Any, ...] | None]] = []
#: The group of the thread: an object, or None outside of groups.
_current = threading.local()
#: For each kind of a hook: the method that registers it, and the flags of this method.
_METHODS = {
    "forward": ("register_forward_hook", ("prepend", "with_kwargs", "always_call")),
    "forward_pre": ("register_forward_pre_hook", ("prepend", "with_kwargs")),
    "full_backward": ("register_full_backward_hook", ("prepend",)),
    "full_backward_pre": ("register_full_backward_pre_hook", ("prepend",)),
}
#: For each kind of a hook of parameters: the method of tensors that registers it.
_OF_PARAMETERS = {"gradient": "register_hook", "accumulated": "register_post_accumulate_grad_hook"}
HOOK_KINDS = (*_METHODS, *_OF_PARAMETERS)
FLAGS = ("prepend", "with_kwargs", "always_call")


@dataclass(frozen=True)
class Hook:
    """A hook of a module, or of the parameters of a module.

    Args:
        kind: One of `HOOK_KINDS`.
        name: The name in the log.
        flags: Some of `FLAGS`. A kind ignores those that it lacks.
        changes: Whether the hook doubles the tensors that it can replace.
    """

    kind: str
    name: int
    flags: tuple[str, ...] = ()
    changes: bool = False

    def register(self, module: nn.Module) -> list[Any]:
        """Register the hook; return its handles."""
        hook = partial(_call, self)
        if self.kind in _OF_PARAMETERS:
            tensors = [each for each in module.parameters(recurse=False) if each.requires_grad]
            return [getattr(each, _OF_PARAMETERS[self.kind])(hook) for each in tensors]
        method, offered = _METHODS[self.kind]
        flags = {name: True for name in offered if name in self.flags}
        return [getattr(module, method)(hook, **flags)]


def _call(hook: Hook, *arguments: Any) -> Any:
    """Write a call of a hook to the log. Return the doubled tensors if the hook changes them."""
    module, *seen = arguments if isinstance(arguments[0], nn.Module) else (None, *arguments)
    facts = pytree.tree_map_only(
        Tensor, lambda each: (tuple(each.shape), str(each.device), each.dtype), seen
    )
    training = getattr(module, "training", None)
    # The class of a wrapper may have any name.
    name = "wrapper" if hasattr(module, "module") else type(module).__name__
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    device = torch.accelerator.current_device_index()
    _add((hook.kind, hook.name, name, training, *modes, device, facts))
    if not hook.changes or hook.kind == "accumulated":
        return None
    place = -1 if hook.kind == "forward" else 0
    doubled = pytree.tree_map_only(Tensor, lambda each: each * 2, seen[place])
    is_pair = hook.kind == "forward_pre" and "with_kwargs" in hook.flags
    return (doubled, seen[1]) if is_pair else doubled


def _add(entry: tuple[Any, ...] | None) -> None:
    _entries.append((threading.get_ident(), getattr(_current, "group", None), entry))


@contextmanager
def group() -> Iterator[None]:
    """Keep the order of the hooks that run in this thread inside the block."""
    _add(None)
    _current.group = object()
    try:
        yield
    finally:
        _current.group = None


def take() -> list[str]:
    """Return the groups since the last call of this function.

    The text of a group has the calls of hooks in order: the calls inside one block of `group`, or
    consecutive calls of one kind and one class of module outside of such blocks. Threads decide
    the order of replicas and of calls in backward, so the groups are sorted.
    """
    ordered = sorted(_entries, key=lambda each: each[0])
    _entries.clear()
    texts: list[str] = []
    for _, run in groupby(ordered, _place_of):
        calls = [entry for _, _, entry in run if entry is not None]
        in_order = bool(calls) and calls[0][0] in ("forward", "forward_pre")
        texts += [repr(calls)] if in_order else map(repr, calls)
    return sorted(texts)


def _place_of(logged: tuple[int, object, tuple[Any, ...] | None]) -> object:
    thread, place, entry = logged
    if place is None and entry is not None:
        kind, _, module, *_ = entry
        place = kind, module
    return thread, place
