"""Transfer of the caller's thread state to the threads that run replicas."""

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from contextvars import Context, copy_context
from dataclasses import dataclass
from threading import get_ident
from typing import Any, NamedTuple

import torch

from ._devices import (
    CPU,
    accelerator_in_use,
    call_on_device,
    current_device,
    device_count,
    is_cpu,
    runtime,
    type_to_use,
)
from ._intra_op_threads import can_set_for_one_thread, set_num_threads
from ._streams import set_current_streams
from ._torch_private import has_changed_operators, unnumbered_default_device

#: A denormal number. PyTorch has no function that returns the setting of the thread, so a product
#: shows it.
_DENORMAL = 5e-324


class _Scope(NamedTuple):
    """The device types and the devices whose settings are transferred."""

    autocast_types: tuple[str, ...]  # The device types whose autocast settings are transferred.
    device_type: str | None  # The type of the devices whose current streams are transferred.
    ordinals: range  # The ordinals of these devices.


class _Flags(NamedTuple):
    """The settings of a thread. If a worker has the same flags as the caller, it sets none."""

    grad: bool
    inference: bool
    autocast: list[bool]  # Whether autocast is on, for each of `autocast_types`.
    autocast_dtypes: list[torch.dtype]  # One for each of `autocast_types`.
    autocast_cache: bool
    flush_denormal: bool
    default_device: torch.device | None
    streams: list[torch.Stream]


class ThreadState(NamedTuple):
    """The state that the thread of one replica inherits from the calling thread.

    Transferred:

    * grad mode and inference mode;
    * autocast of the accelerator and of the CPU: whether it is on, its dtype, and whether
      casts are cached;
    * the default device of ``with torch.device(...)`` and ``torch.set_default_device``, with
      or without an index, as the caller wrote it;
    * context variables, as a copy for each replica;
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

    flags: _Flags
    scope: _Scope
    num_threads: int
    thread: int
    context: Context
    device: torch.device
    is_on_cpu: bool


def thread_states(devices: Sequence[torch.device], on_cpu: int = 1) -> list[ThreadState]:
    """For each of ``devices``, return the state that a replica there inherits from this thread.

    Args:
        devices: The devices.
        on_cpu: The number of replicas that run on the CPU at the same time. They share this
            thread's intra-op threads.
    """
    scope = _find_scope(devices)
    num_threads = share = torch.get_num_threads()
    if on_cpu > 1 and can_set_for_one_thread():
        share = max(1, num_threads // on_cpu)
    flags, thread = _read_flags(scope), get_ident()
    current = current_device(scope.device_type) if scope.ordinals else CPU

    def state(device: torch.device) -> ThreadState:
        # Each replica gets its own copy of the context, because two threads cannot enter one
        # context at the same time.
        if is_cpu(device):
            return ThreadState(flags, scope, share, thread, copy_context(), current, True)
        return ThreadState(flags, scope, num_threads, thread, copy_context(), device, False)

    return [*map(state, devices)]


def call_in(
    state: ThreadState,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Call ``function(*args, **kwargs)`` in ``state``, then restore this thread's state.

    Call this through ``state.context.run``, which sets the context variables.
    """
    set_num_threads(state.num_threads)
    if state.is_on_cpu and state.num_threads > 1:
        _facts_of_thread().has_openmp_pool = True
    wanted, scope = state.flags, state.scope
    # In the caller's own thread the flags are already set.
    before = wanted if state.thread == get_ident() else _baseline_flags(scope)
    contexts: ExitStack | None = None
    try:
        if before != wanted:
            # Enter contexts before the flags are written: inference mode also sets the grad mode.
            contexts = _enter_contexts(before, wanted)
            _write_flags(before, wanted, scope)
        return call_on_device(state.device, function, *args, **kwargs)
    finally:
        _restore_flags(before, wanted, scope, contexts)


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


def is_pristine() -> bool:
    """Return False if earlier replicas left state in this thread that ``call_in`` cannot undo."""
    return not (
        has_changed_operators()
        or torch.is_inference_mode_enabled()
        or _facts_of_thread().has_openmp_pool
    )


def _find_scope(devices: Sequence[torch.device]) -> _Scope:
    # If all replicas are on the CPU, do not initialize the accelerator.
    first = next((device for device in devices if not is_cpu(device)), None)
    device_type = accelerator_in_use() if first is None else type_to_use(first)
    if device_type is None:
        return _Scope(("cpu",), None, range(0))
    has_autocast = torch.amp.is_autocast_available(device_type)
    return _Scope(
        ("cpu", device_type) if has_autocast else ("cpu",),
        device_type,
        range(device_count(device_type)),
    )


def _read_flags(scope: _Scope) -> _Flags:
    return _Flags(
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        [*map(torch.is_autocast_enabled, scope.autocast_types)],
        [*map(torch.get_autocast_dtype, scope.autocast_types)],
        torch.is_autocast_cache_enabled(),
        _DENORMAL * 1.0 == 0.0,
        unnumbered_default_device(),
        _read_streams(scope) if scope.ordinals else [],
    )


def _read_streams(scope: _Scope) -> list[torch.Stream]:
    return [*map(runtime(scope.device_type).current_stream, scope.ordinals)]


def _write_flags(before: _Flags, flags: _Flags, scope: _Scope) -> None:
    """Set the flags that differ from those ``before``, but no flag that needs a context manager.

    Such flags are inference mode and the default device.
    """
    torch.set_grad_enabled(flags.grad)  # Inference mode may have changed it.
    if flags.autocast_cache != before.autocast_cache:
        torch.set_autocast_cache_enabled(flags.autocast_cache)
    if flags.flush_denormal != before.flush_denormal:
        torch.set_flush_denormal(flags.flush_denormal)
    if (flags.autocast, flags.autocast_dtypes) != (before.autocast, before.autocast_dtypes):
        settings = zip(scope.autocast_types, flags.autocast, flags.autocast_dtypes, strict=True)
        for device_type, enabled, dtype in settings:
            torch.set_autocast_enabled(device_type, enabled)
            torch.set_autocast_dtype(device_type, dtype)
    if flags.streams != before.streams:
        set_current_streams(flags.streams)


@dataclass(slots=True)
class _ThreadFacts:
    """Facts about one thread, kept between two calls.

    A ``threading.local`` could not keep them, because its values are released after each call.
    """

    #: The flags of a worker outside of calls, and the scope for which they were read.
    baseline: tuple[_Scope, _Flags] | None = None
    #: Whether operators in the thread may have used several OpenMP threads on the CPU. OpenMP
    #: keeps a pool of threads for such a thread. If all pools together have more threads than the
    #: machine has cores, idle OpenMP threads sleep in the kernel, and every operator of every
    #: thread has to wake them: the caller's own operators take six times as long.
    has_openmp_pool: bool = False


def _facts_of_thread() -> _ThreadFacts:
    """Return the facts about the running thread: a worker, or a thread of the caller."""
    attributes = vars(threading.current_thread())  # Only this thread writes them.
    facts: _ThreadFacts | None = attributes.get("parallel_apply_facts")
    if facts is None:
        facts = attributes["parallel_apply_facts"] = _ThreadFacts()
    return facts


def _baseline_flags(scope: _Scope) -> _Flags:
    # Read this thread's flags once, because changes by replicas are undone. Read the flags again
    # if `scope` changes, for example when the process begins to use the accelerator.
    facts = _facts_of_thread()
    if facts.baseline is None or facts.baseline[0] != scope:
        facts.baseline = scope, _read_flags(scope)
    return facts.baseline[1]


def _restore_flags(
    before: _Flags, wanted: _Flags, scope: _Scope, contexts: ExitStack | None
) -> None:
    """Set the flags ``before``. The thread had the flags ``wanted``, and is in ``contexts``."""
    # Read all flags again, because the replica may have changed any of them.
    now = _read_flags(scope)
    if now == before and contexts is None:
        return
    if now.default_device != wanted.default_device:
        _restore_default_device(wanted.default_device)
    if contexts is not None:
        contexts.close()
    # Write the flags after the contexts are left: leaving inference mode sets the grad mode.
    _write_flags(now, before, scope)


def _enter_contexts(before: _Flags, wanted: _Flags) -> ExitStack | None:
    """Enter the contexts that ``wanted`` needs: inference mode, default device, autocast.

    Return None if it needs none.
    """
    is_in_autocast = any(wanted.autocast)
    if wanted.inference == before.inference and not (wanted.default_device or is_in_autocast):
        return None
    contexts = ExitStack()
    if wanted.inference != before.inference:
        contexts.enter_context(torch.inference_mode(wanted.inference))
    if wanted.default_device is not None:
        contexts.enter_context(wanted.default_device)
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
