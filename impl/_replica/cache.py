"""Replicas that stay while a block lasts, and what must not change meanwhile.

What is looked at before every call is collected once, in flat lists that are compared as wholes:
only where they differ is the culprit looked for.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from .._comm import detached_copies
from .._compat import version_counters
from .._device import DeviceId, as_device_or_current, current_streams, has_streams
from .module_tree import check_source

__all__ = ["Hold", "hold_of", "use_hold"]

#: The modules of a tree with their names, the root first.
_Named = Sequence[tuple[str, nn.Module]]
#: For the index of each buffer, the dictionary that one tree has it in, and its key there.
_Row = dict[int, tuple[Any, str]]
#: Of each tensor the `id`, the version counter and the address.
_States = tuple[list[int], list[object], list[Any]]
#: Of a module whether it is in training; then, as pairs, what it has of each of these kinds.
_Layout = tuple[Any, ...]
_KINDS = {1: "modules", 2: "parameters", 3: "buffers"}


class Hold:
    """The replicas of one wrapper, kept while blocks of ``hold`` last.

    Args:
        device_ids: The wrapper's devices.

    Attributes:
        blocks: How many blocks have been entered and not been left.
    """

    def __init__(self, device_ids: Sequence[DeviceId]) -> None:
        self.blocks = 0
        self._device_ids = list(device_ids)
        self._original: _Original | None = None
        # By the streams that were current when they were made: on these their copies are ready,
        # and from these their memory is freed. A forward on other streams has replicas of its own.
        self._made: dict[tuple[torch.Stream, ...], _Replicas] = {}
        self._lock = Lock()  # Forwards may run in several threads, with the same replicas.

    def replicas(
        self, module: nn.Module, device_ids: Sequence[DeviceId], make: Callable[[], Sequence[Any]]
    ) -> Sequence[Any]:
        """Give replicas of ``module`` as it is now, one for each device.

        Args:
            module: The wrapper's module.
            device_ids: The wrapper's devices.
            make: Makes the replicas where there are none yet.

        Raises:
            RuntimeError: Grad mode is on; or something has changed since the first call.
        """
        if torch.is_grad_enabled():
            raise RuntimeError(
                "Held replicas are detached, and grad mode is on: call the module under "
                "torch.no_grad(), or outside of hold()"
            )
        if list(device_ids) != self._device_ids:
            raise _refusal(f"the devices, {self._device_ids}, have become {list(device_ids)}")
        targets = [as_device_or_current(device) for device in device_ids]
        with self._lock:
            original = self._original or _Original(module)
            original.check(module)
            made = self._made.get(_streams_of(targets))
            if made is None:
                made = self._make(original, targets, make)
            else:
                made.bring_up_to_date()
            return made.all

    def _make(
        self,
        original: "_Original",
        targets: Sequence[torch.device],
        make: Callable[[], Sequence[Any]],
    ) -> "_Replicas":
        # Not as inference tensors: the next forward may be outside of that mode.
        with torch.inference_mode(mode=False), torch.no_grad():
            made = _Replicas(original.modules, make(), targets)
        self._made[_streams_of(targets)] = made
        self._original = original
        return made


class _Original:
    """How a module was when its replicas were made.

    Attributes:
        modules: It and all modules below it, with their names.
    """

    def __init__(self, root: nn.Module) -> None:
        self.modules: _Named = [*root.named_modules()]
        self._bare = [module for _, module in self.modules]
        self._outline = _outline(self._bare)
        self._layouts = [*map(_layout, self._bare)]
        # All are kept, since an `id` is nobody else's while its tensor lives.
        self._parameters = [
            (_joined(prefix, name), parameter)
            for prefix, module in self.modules
            for name, parameter in module._parameters.items()
            if parameter is not None
        ]
        # Those made in inference mode have no counter to be looked at.
        self._names = [name for name, it in self._parameters if not it.is_inference()]
        self._counted = [it for _, it in self._parameters if not it.is_inference()]
        self._states = _states(self._counted)

    def check(self, root: nn.Module) -> None:
        """Refuse a module that is not as it was.

        Raises:
            RuntimeError: Something has changed; the text names it.
        """
        if root is not self._bare[0]:
            raise _refusal("the module is another one")
        if _outline(self._bare) != self._outline:
            raise _refusal(self._changed_layout())
        states = _states(self._counted)
        if states != self._states:
            index = min(_differing(states, self._states))
            raise _refusal(f"parameter {self._names[index]!r} has changed")

    def _changed_layout(self) -> str:
        """Tell what is not as it was in the first module that is not."""
        layouts = map(_layout, self._bare)
        pairs = zip(self.modules, layouts, self._layouts, strict=True)
        (name, _), now, then = next(each for each in pairs if each[1] != each[2])
        if now[0] != then[0]:
            where = f"module {name!r}" if name else "the module"
            return f"{where} has been switched to {'train' if now[0] else 'eval'}()"
        kind = next(index for index in _KINDS if now[index] != then[index])
        one, other = dict(now[kind]), dict(then[kind])
        changed = [key for key in {**other, **one} if one.get(key) != other.get(key)]
        listed = ", ".join(repr(_joined(name, key)) for key in changed or one)
        return f"there are other {_KINDS[kind]}, {listed},"


class _Replicas:
    """Replicas, and the state of their buffers.

    Args:
        modules: The modules that were replicated, with their names.
        replicas: What a step that may be overridden has made of the first of them.
        targets: The device of each replica.

    Attributes:
        all: The replicas.
    """

    def __init__(
        self, modules: _Named, replicas: Sequence[Any], targets: Sequence[torch.device]
    ) -> None:
        self.all = replicas
        self._root = modules[0][1]
        self._targets = targets[: len(replicas)]
        keys = [(name, key) for name, module in modules for key in _filled(module._buffers)]
        # The module's row comes first. What an overriding step has not made of one of the
        # module's modules has no buffers to look after.
        self._rows: list[_Row] = [
            {
                index: (buffers, key)
                for index, (name, key) in enumerate(keys)
                if (buffers := _buffers_at(root, name)) is not None
            }
            for root in (self._root, *replicas)
        ]
        self._note()

    def bring_up_to_date(self) -> None:
        """Give the replicas copies of those buffers that have changed there or in the module.

        They then have what new replicas would have; the first one has the module's own.
        """
        indices = {
            index
            for row, tensors, states in zip(self._rows, self._read(), self._states, strict=True)
            for index in _changed(row, tensors, states)
        }
        if not indices:
            return
        # A buffer that modules share is replaced wherever it is, by one copy.
        changed = {id(it): it for it in map(self._source, indices)}
        if {it.device for it in changed.values()} - {self._targets[0]}:
            check_source(self._root, self._targets[0])
        with torch.inference_mode(mode=False):
            copies = detached_copies([*changed.values()], self._targets)
        for row, tensors in zip(self._rows[1:], copies, strict=True):
            twins = dict(zip(changed, tensors, strict=True))
            for index, (buffers, key) in row.items():
                twin = twins.get(id(self._source(index)))
                if twin is not None:
                    buffers[key] = twin
        self._note()

    def _source(self, index: int) -> Tensor:
        buffers, key = self._rows[0][index]
        source: Tensor = buffers[key]
        return source

    def _read(self) -> list[list[Tensor | None]]:
        return [[it.get(key) for it, key in row.values()] for row in self._rows]

    def _note(self) -> None:
        # The tensors are kept, too: an `id` is nobody else's while they live.
        self._tensors = self._read()
        self._states = [*map(_states, self._tensors)]


def _outline(modules: Sequence[nn.Module]) -> list[Any]:
    """List what modules have, but for the values of buffers, which may change."""
    found: list[Any] = [[module.training for module in modules]]
    for kind in ("_modules", "_parameters", "_buffers"):
        each = [*map(attrgetter(kind), modules)]
        found.append([*map(len, each)])
        found.append([*chain.from_iterable(it.keys() for it in each if it)])
        members = chain.from_iterable(it.values() for it in each if it)
        found.append([it is None for it in members] if kind == "_buffers" else [*map(id, members)])
    return found


def _layout(module: nn.Module) -> _Layout:
    """List the same of one module: slower, and easier to read."""
    children, parameters, buffers = module._modules, module._parameters, module._buffers
    return (
        module.training,
        [(name, id(it)) for name, it in children.items()],
        [(name, id(it)) for name, it in parameters.items()],
        [(name, it is None) for name, it in buffers.items()],
    )


def _states(tensors: Sequence[Tensor | None]) -> _States:
    """List what shows that a tensor is another one, has changed in place, or other memory."""
    return [*map(id, tensors)], version_counters(tensors), _addresses(tensors)


def _addresses(tensors: Sequence[Tensor | None]) -> list[Any]:
    try:
        return [*map(Tensor.data_ptr, tensors)]  # type: ignore[arg-type] # None raises TypeError
    except (RuntimeError, TypeError):  # Some are sparse, for example, and have no one address.
        return [
            None if it is None or it.layout is not torch.strided else it.data_ptr()
            for it in tensors
        ]


def _changed(row: _Row, tensors: Sequence[Tensor | None], before: _States) -> Iterator[int]:
    states = _states(tensors)
    if states == before:
        return iter(())
    indices = [*row]
    return (indices[each] for each in _differing(states, before))


def _differing(now: _States, then: _States) -> set[int]:
    columns = zip(zip(*now, strict=True), zip(*then, strict=True), strict=True)
    return {index for index, (one, other) in enumerate(columns) if one != other}


class _Assigned:
    """The buffers of a module that sees to it itself how attributes are set.

    Such are script modules, those below which are no Python modules in a replica.
    """

    def __init__(self, module: Any) -> None:
        self._module = module

    def get(self, key: str) -> Any:
        return getattr(self._module, key, None)

    def __getitem__(self, key: str) -> Any:
        return getattr(self._module, key)

    def __setitem__(self, key: str, value: Tensor) -> None:
        setattr(self._module, key, value)


def _buffers_at(root: Any, name: str) -> Any:
    """Give the buffers of the module below ``root`` that has this name; None if there is none."""
    try:
        module = attrgetter(name)(root) if name else root
    except AttributeError:
        return None
    if isinstance(module, nn.Module) and type(module).__setattr__ is nn.Module.__setattr__:
        return module._buffers
    return _Assigned(module)


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _filled(members: Mapping[str, Any]) -> list[str]:
    return [name for name, member in members.items() if member is not None]


def _streams_of(devices: Sequence[torch.device]) -> tuple[torch.Stream, ...]:
    return (*current_streams(device.index for device in devices if has_streams(device)),)


def _refusal(change: str) -> RuntimeError:
    return RuntimeError(
        f"{change[0].upper()}{change[1:]} since the replicas were made that hold() keeps: leave "
        "the block, and enter another one to have new replicas"
    )


_holds: dict[int, Hold] = {}
_lock = Lock()


def hold_of(wrapper: nn.Module) -> Hold | None:
    """Give the replicas that are held for ``wrapper``; None outside of blocks."""
    return _holds.get(id(wrapper))


@contextmanager
def use_hold(wrapper: nn.Module, device_ids: Sequence[DeviceId]) -> Iterator[None]:
    """Hold the replicas of ``wrapper`` in a ``with`` block, which may stand in another one."""
    # Not an attribute, which copies, pickles and replicas of the wrapper would have, too. The
    # block keeps the wrapper, so its `id` is nobody else's.
    with _lock:
        hold = _holds.setdefault(id(wrapper), Hold(device_ids))
        hold.blocks += 1
    try:
        yield
    finally:
        with _lock:
            hold.blocks -= 1
            if not hold.blocks:
                del _holds[id(wrapper)]
