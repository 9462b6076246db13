"""Wrong implementations of ``cache_frozen_parameters``: caches that leave out one rule each.

A cache is put around ``DataParallel.replicate``. It keeps the replicas' tensors, and puts them
into later replicas if the parameter and its copy have the same state as before.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from impl_tests.wrong import state
from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()
#: The steps of all optimizers since a cache was first used.
_steps: list[object] = []
#: For each rule: the part of the state of a parameter that the rule compares.
_RULES: dict[str, Callable[[Tensor, torch.device], object]] = {
    "versions": lambda parameter, _: parameter._version,
    "memory": lambda parameter, _: (id(parameter), parameter.data_ptr()),
    "shapes": lambda parameter, _: (parameter.shape, parameter.stride()),
    "flags": lambda parameter, _: parameter.requires_grad,
    "steps": lambda *_: len(_steps),
    "streams": lambda _, device: device.type != "cpu" and torch.accelerator.current_stream(device),
    "copies": lambda *_: None,
    "storages": lambda *_: None,
}


class _Cache:
    """The copies of one wrapper, without one of the rules."""

    def __init__(self, left_out: str) -> None:
        self._left_out = left_out
        self._kept: dict[object, tuple[Any, ...]] = {}

    def exchange(self, key: object, parameter: Tensor, copy: Tensor) -> Tensor:
        """Return the copy that is kept for ``key``, or keep ``copy``."""
        now = [
            rule(parameter, copy.device) for name, rule in _RULES.items() if name != self._left_out
        ]
        kept: Tensor
        kept, before, version, *_ = self._kept.get(key, (copy, None, None))
        unchanged = self._left_out == "copies" or kept._version == version
        if before == now and unchanged:
            return kept
        self._kept.pop(key, None)
        if not parameter.requires_grad and not parameter.is_inference():
            pinned = None if self._left_out == "storages" else parameter.untyped_storage()
            self._kept[key] = copy, now, copy._version, parameter, pinned
        return copy


def _without(left_out: str) -> None:
    """Register a cache that leaves out a rule."""
    caches: dict[int, tuple[_Cache, nn.Module]] = {}

    def run(call: Call) -> Any:
        wrapper, module = call.arguments["self"], call.arguments["module"]
        option = getattr(wrapper, "cache_frozen_parameters", False)
        if not option:
            return call.run()
        if not caches:
            state.later(register_optimizer_step_post_hook(_count_step).remove)
            state.later(caches.clear)
        cache, _ = caches.setdefault(id(wrapper), (_Cache(left_out), wrapper))
        wrapper.cache_frozen_parameters = False  # The caches of the target have all rules.
        try:
            replicas = call.run()
        finally:
            wrapper.cache_frozen_parameters = option
        _exchange(cache, module, replicas)
        return replicas

    KINDS[f"frozen-copies-without-{left_out}"] = run


def _count_step(*_: object) -> None:
    _steps.append(None)


def _exchange(cache: _Cache, module: nn.Module, replicas: list[Any]) -> None:
    """Put the copies that are kept into all replicas but the first."""
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter.is_inference():
            continue
        path, _, leaf = name.rpartition(".")
        for index, replica in enumerate(replicas[1:]):
            members = vars(replica.get_submodule(path))
            copy = cache.exchange((name, index), parameter, members[leaf])
            members[leaf] = members["_former_parameters"][leaf] = copy


for _rule in _RULES:
    _without(_rule)


@KINDS.around
def frozen_copies_with_buffers(call: Call) -> Any:
    """Keep the first copies of buffers, too."""
    replicas = call.run()
    wrapper = call.arguments["self"]
    if getattr(wrapper, "cache_frozen_parameters", False):
        kept = vars(wrapper).setdefault("_kept_buffers", {})
        for index, replica in enumerate(replicas[1:]):
            for path, member in replica.named_modules():
                for name, buffer in member._buffers.items():
                    member._buffers[name] = kept.setdefault((index, path, name), buffer)
    return replicas


@KINDS.around
def values_not_compared(call: Call) -> Any:
    """Compare no values."""
    result = call.run()
    if call.arguments.get("cache_frozen_parameters") == "check":
        call.arguments["self"].cache_frozen_parameters = True
    return result


@KINDS.around
def frozen_copies_of_the_first_forward(call: Call) -> Any:
    """Never copy a frozen parameter again."""
    replicas = call.run()
    wrapper, module = call.arguments["self"], call.arguments["module"]
    if getattr(wrapper, "cache_frozen_parameters", False):
        kept = vars(wrapper).setdefault("_first_copies", {})
        for name, parameter in module.named_parameters(remove_duplicate=False):
            path, _, leaf = name.rpartition(".")
            for index, replica in enumerate(replicas[1:]):
                members = vars(replica.get_submodule(path))
                if not parameter.requires_grad:
                    members[leaf] = kept.setdefault((index, name), members[leaf])
    return replicas
