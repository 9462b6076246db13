"""What a replica's thread takes over from the thread that called it."""

import asyncio  # torch has imported it, too.
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from contextvars import Context, copy_context
from threading import get_ident
from typing import Any, NamedTuple

import torch

from ._devices import (
    CPU,
    accelerator_in_use,
    accelerator_type,
    current_device,
    current_streams,
    is_cpu,
    set_current_streams,
    use_device,
)
from ._internals import (
    function_mode_count,
    has_dispatch_modes,
    has_saved_tensor_hooks,
    has_transforms,
    unnumbered_default_device,
)
from ._thread_locals import can_be_fresh

__all__ = [
    "ThreadState",
    "call_in",
    "is_pristine",
    "take_up_hooks",
    "thread_states",
    "travels_whole",
]


class _Scope(NamedTuple):
    """Which settings there are to read and write: that depends on the accelerator in use."""

    autocast_types: tuple[str, ...]
    ordinals: range  # Of the accelerator's devices.


class _Flags(NamedTuple):
    """The settings of one thread; they compare equal when there is nothing to do."""

    grad: bool
    inference: bool
    autocast: list[bool]  # For each of the autocast types, as are the dtypes.
    autocast_dtypes: list[torch.dtype]
    autocast_cache: bool
    default_device: torch.device | None
    streams: list[torch.Stream]


class ThreadState(NamedTuple):
    """Everything that one replica's thread takes over from the caller's.

    These travel:

    * grad mode and inference mode;
    * autocast of the accelerator and of the CPU: whether it is on, its dtype, and whether
      casts are cached;
    * the default device of ``with torch.device(...)`` and ``torch.set_default_device``, with
      or without an index, as the caller wrote it;
    * context variables: each replica has its own copy, so what it sets stays with it;
    * the current stream of every device;
    * the number of threads that one operation may use on the CPU.

    The replica's device becomes the current one; for a replica on the CPU that of the caller
    stays. Where all replicas are on the CPU and this process does not use the accelerator (yet,
    or since it is a forked child), the accelerator is not touched, and nothing of it travels.
    Whatever the replica changes in these is put back when it ends, in a thread of its
    own as in the caller's.

    These stay behind:

    * dispatch modes, function modes and hooks on saved tensors: their objects belong to the
      thread that entered them and are not written to be called from several at once;
    * functorch transforms (``vmap``, ``grad``, ...): their levels are a stack of one thread;
    * profilers and ``sys.settrace``: made to tell threads apart. The hooks of
      ``threading.settrace`` and ``threading.setprofile`` are every replica's, as they are every
      new thread's;
    * what is in a ``threading.local``: a replica finds nothing there, neither of the caller nor
      of a replica or call before, and what it puts there goes when it ends;
    * the event loop that runs in the caller's thread: a replica may run one of its own;
    * the exception being handled: it is no cause of what goes wrong in a replica;
    * what the process shares needs no travelling: anomaly mode, deterministic algorithms,
      the default dtype, the backends' flags.
    """

    flags: _Flags
    scope: _Scope
    num_threads: int
    thread: int
    context: Context
    device: torch.device
    is_on_cpu: bool


def thread_states(devices: Sequence[torch.device]) -> list[ThreadState]:
    """Gather the calling thread's state for a replica on each of ``devices``."""
    scope = _scope(devices)
    # Read once for all replicas. Only the context is copied for each: two threads cannot be in
    # one context at the same time.
    shared = (_read_flags(scope), scope, torch.get_num_threads(), get_ident())
    here = current_device() if scope.ordinals else CPU
    return [
        ThreadState(*shared, copy_context(), here if is_cpu(device) else device, is_cpu(device))
        for device in devices
    ]


def call_in(
    state: ThreadState,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Call ``function(*args, **kwargs)`` in ``state``, then put this thread's own state back.

    Call this through ``state.context.run``, which lends it the context variables.
    """
    _limit_threads(state.num_threads)
    if state.is_on_cpu and state.num_threads > 1:
        vars(threading.current_thread())[_OPENMP_POOL] = True
    with _UseFlags(state), use_device(state.device):
        return function(*args, **kwargs)


def travels_whole() -> bool:
    """Tell whether all of this thread's state travels, so that a replica may run here.

    Where it does not, a replica that ran in this thread would see what the others do not.
    """
    return (
        sys.exception() is None
        and asyncio._get_running_loop() is None
        and can_be_fresh()
        and not _has_private_hooks()
        and not _has_private_modes()
        and _are_devices_only()
    )


def take_up_hooks() -> None:
    """Trace and profile this thread as one that begins now would be."""
    if sys.gettrace() is not threading.gettrace():
        sys.settrace(threading.gettrace())
    if sys.getprofile() is not threading.getprofile():
        sys.setprofile(threading.getprofile())


def is_pristine() -> bool:
    """Return whether the replicas that ended here left nothing that ``call_in`` cannot undo."""
    return not (
        _has_private_modes()
        or function_mode_count()
        or torch.is_inference_mode_enabled()
        or _OPENMP_POOL in vars(threading.current_thread())
    )


def _has_private_hooks() -> bool:
    """Tell whether this thread is traced or profiled in another way than new ones are."""
    return (
        sys.gettrace() is not threading.gettrace()
        or sys.getprofile() is not threading.getprofile()
    )


def _has_private_modes() -> bool:
    """Tell whether modes or hooks are active that stay behind."""
    return has_dispatch_modes() or has_saved_tensor_hooks() or has_transforms()


def _are_devices_only() -> bool:
    """Tell whether no function mode is active but a default device, which is one and travels."""
    return function_mode_count() == (unnumbered_default_device() is not None)


def _scope(devices: Sequence[torch.device]) -> _Scope:
    # Replicas on the CPU alone work in a process that must not touch the accelerator, too.
    on_cpu = all(map(is_cpu, devices))
    kind = accelerator_in_use() if on_cpu else accelerator_type()
    if kind is None:
        return _Scope(("cpu",), range(0))
    has_autocast = torch.amp.is_autocast_available(kind)
    ordinals = range(torch.accelerator.device_count())
    return _Scope(("cpu", kind) if has_autocast else ("cpu",), ordinals)


def _read_flags(scope: _Scope) -> _Flags:
    return _Flags(
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        [*map(torch.is_autocast_enabled, scope.autocast_types)],
        [*map(torch.get_autocast_dtype, scope.autocast_types)],
        torch.is_autocast_cache_enabled(),
        unnumbered_default_device(),
        current_streams(scope.ordinals),
    )


def _write_flags(flags: _Flags, scope: _Scope) -> None:
    """Set what can be set; inference mode and the default device are contexts."""
    torch.set_grad_enabled(flags.grad)
    torch.set_autocast_cache_enabled(flags.autocast_cache)
    settings = zip(scope.autocast_types, flags.autocast, flags.autocast_dtypes, strict=True)
    for kind, enabled, dtype in settings:
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)
    set_current_streams(flags.streams)


def _limit_threads(count: int) -> None:
    # Never put back: setting it also decides what threads born later begin with.
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


#: The attribute of a worker's thread that says what it has between two replicas: what it was born
#: with. (Not in a ``threading.local``: what is there goes when a replica ends.)
_AT_REST = "parallel_apply at rest"


#: The attribute of a worker's thread whose operators ran on the CPU with several OpenMP threads.
#: OpenMP keeps a pool for each thread that used several. When all pools together have more threads
#: than the machine has cores, the idle ones sleep in the kernel, and every later operator of every
#: thread has to wake them: the calling thread's own operators then take six times as long.
_OPENMP_POOL = "parallel_apply OpenMP pool"


def _flags_at_rest(scope: _Scope) -> _Flags:
    # Read when a replica is about to begin, so nothing of any replica is in them: each one puts
    # back what it has changed. Again where there is more to look at than before, for example
    # since the process has begun to use the accelerator.
    about: dict[str, Any] = vars(threading.current_thread())  # Nobody else writes there.
    known: tuple[_Scope, _Flags] | None = about.get(_AT_REST)
    if known is None or known[0] != scope:
        known = about[_AT_REST] = scope, _read_flags(scope)
    return known[1]


class _UseFlags:
    """Take over the caller's flags inside a ``with`` block."""

    __slots__ = ("_before", "_entered", "_scope", "_wanted")

    def __init__(self, state: ThreadState) -> None:
        self._wanted, self._scope = state.flags, state.scope
        # In the caller's own thread they were read a moment ago.
        here = state.thread == get_ident()
        self._before = self._wanted if here else _flags_at_rest(self._scope)
        self._entered: ExitStack | None = None

    def __enter__(self) -> None:
        if self._before != self._wanted:
            # Contexts first: inference mode brings a grad mode of its own.
            self._entered = _enter_contexts(self._before, self._wanted)
            _write_flags(self._wanted, self._scope)

    def __exit__(self, *_: object) -> None:
        # The replica may have changed anything: what is compared is how it leaves the thread.
        now = _read_flags(self._scope)
        if now == self._before and self._entered is None:
            return
        if now.default_device != self._wanted.default_device:
            _reset_default_device(self._wanted.default_device)
        if self._entered is not None:
            self._entered.close()
        # Last, since leaving inference mode sets the grad mode, too.
        _write_flags(self._before, self._scope)


def _enter_contexts(before: _Flags, wanted: _Flags) -> ExitStack:
    """Enter what of ``wanted`` can only be had as a context."""
    contexts = ExitStack()
    if wanted.inference != before.inference:
        contexts.enter_context(torch.inference_mode(wanted.inference))
    if wanted.default_device is not None and wanted.default_device != before.default_device:
        contexts.enter_context(wanted.default_device)
    if any(wanted.autocast):
        torch.autocast_increment_nesting()
        contexts.callback(_leave_autocast)
    return contexts


def _leave_autocast() -> None:
    # As torch.autocast does: the outermost region of a thread drops the cached casts, which
    # would keep the replica's weights alive.
    if torch.autocast_decrement_nesting() == 0:
        torch.clear_autocast_cache()


def _reset_default_device(device: torch.device | None) -> None:
    """Undo a ``torch.set_default_device`` of the replica."""
    torch.set_default_device(None)  # Brings back what a surrounding block had entered.
    if unnumbered_default_device() != device:
        torch.set_default_device(device)
