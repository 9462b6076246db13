"""Transfer of the caller's thread state to the threads that run replicas."""

import operator
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import Any, NamedTuple, Self

import torch

from ._devices import accelerator_in_use, device_count, is_cpu, runtime_of_type, type_to_use
from ._intra_op_threads import can_set_for_one_thread, set_num_threads
from ._settings import call_with_setting
from ._streams import set_current_stream
from ._torch_private import (
    current_device_readers,
    has_changed_operators,
    unnumbered_default_device,
)

#: Return whether denormal numbers count as 0 in this thread. PyTorch has no function that returns
#: this setting.
_flushes_denormal = partial(operator.eq, 5e-324, 0.0)


#: The values of the settings of a thread, in the order of `_Scope`. The first two are set by
#: context managers.
_Flags = list[Any]
_INFERENCE, _DEFAULT_DEVICE, _NUM_CONTEXTS = 0, 1, 2


class _Scope:
    """The transferred settings of the CPU and of one accelerator; last, its current device."""

    def __init__(self, device_type: str | None) -> None:
        types = ["cpu"]
        if device_type is not None and torch.amp.is_autocast_available(device_type):
            types.append(device_type)
        #: The flags that say whether autocast is on.
        self.autocast = slice(_NUM_CONTEXTS, _NUM_CONTEXTS + len(types))
        self._readers: list[Callable[[], Any]] = [
            *(torch.is_inference_mode_enabled, unnumbered_default_device),
            *[partial(torch.is_autocast_enabled, each) for each in types],
            *[partial(torch.get_autocast_dtype, each) for each in types],
            *(torch.is_autocast_cache_enabled, torch.is_grad_enabled, _flushes_denormal),
        ]
        self._writers: list[Callable[[Any], object]] = [
            *[partial(torch.set_autocast_enabled, each) for each in types],
            *[partial(torch.set_autocast_dtype, each) for each in types],
            *(torch.set_autocast_cache_enabled, torch.set_grad_enabled, torch.set_flush_denormal),
        ]
        if device_type is not None:
            accelerator, ordinals = runtime_of_type(device_type), range(device_count(device_type))
            read_stream, read_index = current_device_readers(accelerator)
            self._readers += [*[partial(read_stream, each) for each in ordinals], read_index]
            self._writers += [set_current_stream] * len(ordinals)
            self._writers.append(accelerator.set_device_index)

    def read(self) -> _Flags:
        """Return the flags of this thread."""
        return [*map(operator.call, self._readers)]

    def set(self, flags: _Flags) -> None:
        """Set the flags of this thread that differ from ``flags``, except inference mode."""
        now = self.read()
        if now == flags:
            return
        if now[_DEFAULT_DEVICE] != flags[_DEFAULT_DEVICE]:
            _restore_default_device(flags[_DEFAULT_DEVICE])
        for index, write in enumerate(self._writers, _NUM_CONTEXTS):
            if flags[index] != now[index]:
                write(flags[index])


_find_scope = cache(_Scope)


class ThreadState(NamedTuple):
    """The state that the thread of one replica inherits from the calling thread.

    Transferred:

    * grad mode and inference mode;
    * autocast of the accelerator and of the CPU: whether it is on, its dtype, and whether
      casts are cached;
    * the default device of ``with torch.device(...)`` and ``torch.set_default_device``, with
      or without an index, as the caller wrote it;
    * context variables, of which each function enters a copy itself;
    * the current stream of every device;
    * the number of threads that one operation may use on the CPU. Replicas on the CPU that run
      at the same time share the caller's threads;
    * whether the CPU rounds denormal numbers to zero (``torch.set_flush_denormal``).

    The replica's device becomes the current one. A replica on the CPU keeps the caller's current
    device. If all replicas are on the CPU and this process does not use the accelerator, because
    it has not initialized it or is a forked child, nothing of the accelerator is read or
    transferred. When the replica ends, its changes to this state are undone, both in a worker
    thread and in the caller's thread. Only its ``torch.set_num_threads`` is not undone.

    Not transferred:

    * dispatch modes, function modes and hooks on saved tensors: their objects belong to the
      thread that entered them, and may not support concurrent calls;
    * ``torch._C.DisableTorchFunctionSubclass``;
    * functorch transforms (``vmap``, ``grad``, ...): each thread has its own stack of levels;
    * profilers and ``sys.settrace``, which distinguish threads on purpose. The hooks of
      ``threading.settrace`` and ``threading.setprofile`` are installed for every replica, as for
      every new thread;
    * ``threading.local`` values: a replica starts with none, and those that it sets are released
      when it ends;
    * the running event loop of the caller's thread: a replica may run its own event loop;
    * the exception that the caller is handling: it does not become the ``__context__`` of errors
      in replicas;
    * process-wide settings, which need no transfer: anomaly mode, deterministic algorithms, the
      default dtype, the backends' flags.
    """

    scope: _Scope
    flags: _Flags
    num_threads: int
    is_on_cpu: bool


class CallerState(NamedTuple):
    """The flags of the calling thread, and its number of intra-op threads."""

    scope: _Scope
    flags: _Flags
    num_threads: int

    @classmethod
    def read(cls, devices: Sequence[torch.device]) -> Self:
        """Return the state of this thread, as far as replicas on ``devices`` inherit it."""
        # If all replicas are on the CPU, do not initialize the accelerator.
        first = next((device for device in devices if not is_cpu(device)), None)
        scope = _find_scope(accelerator_in_use() if first is None else type_to_use(first))
        return cls(scope, scope.read(), torch.get_num_threads())

    def is_current(self) -> bool:
        """Return whether this thread has this state."""
        return self.scope.read() == self.flags and torch.get_num_threads() == self.num_threads

    def states(
        self, devices: Sequence[torch.device], *, in_turn: bool = False
    ) -> list[ThreadState]:
        """For each of ``devices``, return the state that a replica there inherits.

        Unless the replicas run ``in_turn``, those on the CPU share the intra-op threads.
        """
        scope, flags, num_threads = self
        on_cpu = [*map(is_cpu, devices)]
        at_once, share = 1 if in_turn else sum(on_cpu), num_threads
        if at_once > 1 and can_set_for_one_thread():
            share = max(1, num_threads // at_once)
        state_on_cpu = ThreadState(scope, flags, share, True)
        return [
            state_on_cpu
            if is_on_cpu
            else ThreadState(scope, [*flags[:-1], device.index], num_threads, False)
            for device, is_on_cpu in zip(devices, on_cpu, strict=True)
        ]


def call_in(state: ThreadState, function: Callable[[], Any]) -> Any:
    """Call ``function()`` in ``state``, which is that of this thread except for the device.

    The function itself enters the context of ``state``. This thread's state is restored.
    """
    scope = state.scope
    return call_with_setting(scope.set, state.flags, scope.read(), function)


class WorkerState:
    """The state of a worker thread. The worker keeps the flags of a call until the next one.

    A ``threading.local`` could not keep this state, because its values are released after each
    call.
    """

    __slots__ = ("_flags", "_initial", "_scope", "has_openmp_pool")

    def __init__(self) -> None:
        self._scope: _Scope | None = None
        self._initial: _Flags = []
        self._flags: _Flags = []
        #: Whether operators in the thread may have used several OpenMP threads on the CPU. OpenMP
        #: keeps a pool of threads for such a thread. If all pools together have more threads than
        #: the machine has cores, idle OpenMP threads sleep in the kernel, and every operator of
        #: every thread has to wake them: the caller's own operators take six times as long.
        self.has_openmp_pool = False

    def call_in(self, state: ThreadState, function: Callable[[], Any]) -> Any:
        """Call ``function()`` in ``state``, then undo its changes.

        The function itself enters the context of ``state``.
        """
        if torch.get_num_threads() != state.num_threads:
            set_num_threads(state.num_threads)
        if state.is_on_cpu and state.num_threads > 1:
            self.has_openmp_pool = True
        scope, wanted = state.scope, state.flags
        if scope is not self._scope:
            self.reset()
            self._scope, self._initial = scope, scope.read()
            self._flags = self._initial
        contexts = None
        try:
            if wanted != self._flags:
                # Enter contexts before the flags are set: inference mode also sets the grad mode.
                contexts = _enter_contexts(scope, wanted)
                scope.set(wanted)
            return function()
        finally:
            if scope.read() != wanted:
                scope.set(wanted)
            if contexts is None:
                self._flags = wanted
            else:
                # Set flags after the contexts are left: leaving inference mode sets the grad mode.
                contexts.close()
                scope.set(self._flags)

    def reset(self) -> None:
        """Set the flags of a new thread."""
        if self._scope is not None:
            self._scope.set(self._initial)
            self._flags = self._initial

    def is_pristine(self) -> bool:
        """Return False if earlier calls left state in this thread that cannot be undone."""
        return not (
            has_changed_operators() or torch.is_inference_mode_enabled() or self.has_openmp_pool
        )


def _enter_contexts(scope: _Scope, flags: _Flags) -> ExitStack | None:
    """Enter the contexts of inference mode, default device and autocast, if one is needed."""
    if not (flags[_INFERENCE] or flags[_DEFAULT_DEVICE] or any(flags[scope.autocast])):
        return None
    contexts = ExitStack()
    if flags[_INFERENCE]:
        contexts.enter_context(torch.inference_mode())
    if flags[_DEFAULT_DEVICE] is not None:
        contexts.enter_context(flags[_DEFAULT_DEVICE])
    torch.autocast_increment_nesting()
    contexts.callback(_leave_autocast)
    return contexts


def _leave_autocast() -> None:
    # As in torch.autocast, clear the cache of casts when the outermost region of a thread ends.
    # The cache would keep the replica's weights alive.
    if torch.autocast_decrement_nesting() == 0:
        torch.clear_autocast_cache()


def _restore_default_device(device: torch.device | None) -> None:
    """Undo a ``torch.set_default_device`` of the replica."""
    # Remove the replica's default device first: then the device of an outer `with` block applies.
    torch.set_default_device(None)
    if unnumbered_default_device() != device:
        torch.set_default_device(device)


def clear_old_casts() -> None:
    """Clear autocast's cache of casts if a replica could compute with casts of earlier values.

    Autocast caches casts of leaves that require grad until the outermost region ends. The first
    replica may share its parameters with the original module. It would use casts that the caller
    or an earlier call has made, and the other replicas would not.
    """
    is_in_region = torch.autocast_increment_nesting() > 1
    torch.autocast_decrement_nesting()
    # Do not clear the cache without need: the call releases the interpreter lock, and then waits
    # for workers that still end the previous call. In grad mode the parameters of replicas are no
    # leaves; outside of a region only a region of another thread could have cached a cast.
    if is_in_region or not torch.is_grad_enabled():
        torch.clear_autocast_cache()


def install_thread_hooks() -> None:
    """Install the hooks of ``threading.settrace`` and ``threading.setprofile`` in this thread."""
    if sys.gettrace() is not threading.gettrace():
        sys.settrace(threading.gettrace())
    if sys.getprofile() is not threading.getprofile():
        sys.setprofile(threading.getprofile())
