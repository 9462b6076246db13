"""Concurrent calls of several modules, each on its own device and in its own thread."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from itertools import chain
from typing import Any, NoReturn

import torch
from torch import Tensor

from ._arguments import argument, as_bool
from ._compiled import has_compiled_code
from ._devices import DeviceLike, as_device_or_current, as_devices, is_cpu
from ._devices import device_index as _get_device_index  # noqa: F401 - for copies of this file
from ._diagnostics import EXPLAINED, explain
from ._errors import CapturedError, capture, reraise
from ._replica_group import ReplicaGroup
from ._thread_state import CallerState, ThreadState, call_in, clear_old_casts
from ._threads import start_in_thread
from ._torch_private import exclude_from_compilation
from ._tracing import check_not_traced

__all__ = ["get_a_var", "parallel_apply"]

#: The reason why modules cannot wait for each other.
_IN_TURN = "that run one after the other, as with in_turn or compiled modules"


def get_a_var(obj: object) -> Tensor | None:
    """Return the first tensor in nested tuples, lists and dictionaries.

    Args:
        obj: Any object. Each key of a dictionary comes before its value.

    Returns:
        The tensor itself, or None.

    Raises:
        RecursionError: Containers are nested deeper than the recursion limit.
    """
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, dict):
        parts: Iterable[object] = chain.from_iterable(obj.items())
    elif isinstance(obj, (list, tuple)):
        parts = obj
    else:
        return None
    for part in parts:
        tensor = get_a_var(part)
        if tensor is not None:
            return tensor
    return None


@exclude_from_compilation
def parallel_apply(
    modules: Sequence[Callable[..., Any]],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[Mapping[str, Any]] | None = None,
    devices: Sequence[DeviceLike | None] | None = None,
    *,
    in_turn: bool = False,
) -> list[Any]:
    """Call each ``modules[i]`` with ``inputs[i]`` on ``devices[i]``, all at the same time.

    A single module runs in the calling thread. Several modules run in worker threads.

    Each module runs with the state of the calling thread: grad mode, inference mode, autocast, the
    default device, context variables, current streams, and the settings of
    ``torch.set_num_threads`` and ``torch.set_flush_denormal``. Changes that a module makes to this
    state are discarded, except ``torch.set_num_threads``. In a region of autocast, or without grad
    mode, the call clears autocast's cache, so that all modules cast the current values of their
    parameters.

    Modules on the CPU divide the caller's intra-op threads: with ``m`` of them, an operator uses
    ``torch.get_num_threads() // m`` threads, at least one. With ``in_turn``, and without the
    functions ``omp_set_num_threads`` of OpenMP and ``MKL_Set_Num_Threads_Local`` of MKL, it uses
    all of them.

    Replicas that run compiled code (see ``replicate``) run one after the other, because PyTorch
    compiles in one thread at a time.

    Args:
        modules: ``k`` modules, at least one.
        inputs: ``k`` inputs. A list or tuple contains the positional arguments; any other object
            is the only argument.
        kwargs_tup: ``k`` mappings of keyword arguments; None for no keyword arguments.
        devices: For each module, the device that is current while it runs. None means the device
            of the first tensor in its inputs, else in its keyword arguments, else the caller's
            current device.
        in_turn: Whether the modules run one after the other, each in a worker thread. Then no
            thread waits for the interpreter lock, and asynchronous devices still compute at the
            same time; ``docs/in_turn.md`` says when this is faster. A module that waits for a
            later one waits forever.

    Returns:
        The ``k`` results in the order of ``modules``. The call returns when all modules have
        returned. It does not wait for the devices.

    Raises:
        AssertionError: The lengths differ.
        IndexError: ``modules`` is empty.
        TypeError: A sequence has no length, or an object names no device.
        Exception: A module raised an exception. If several modules did, the exception of the
            first one in ``modules`` is raised; errors of a :class:`SyncBatchNorm` that waited for
            another module come last. The raised exception is new. It has the original class if
            that can be built from a text, else it is a RuntimeError. Its text names the replica
            and its device, and the original exception is its cause. It is raised when all modules
            have ended.
        BaseException: A module raised a BaseException other than an Exception. The same object
            is raised. With ``in_turn``, later modules are not called.
        RuntimeError: torch.jit.trace records a call of several modules; or the system refuses to
            start another thread. In the second case, modules that have started run to their end,
            and their results are discarded.

    Note:
        Modules on the CPU, or on the same device, draw from one random generator. In threads,
        the order of the draws differs from call to call, so random numbers do not repeat under a
        seed. With ``in_turn`` they repeat.

        An interrupt (Ctrl-C) of a call of several modules is raised at once. Modules that run
        finish, and their results are discarded. An interrupt ends a single module.
    """
    in_turn = as_bool("in_turn", in_turn)
    if type(modules) in (list, tuple):
        modules = list(modules)
    else:
        with argument("modules"):
            modules = [modules[index] for index in range(len(modules))]
    given = {"inputs": inputs}
    if kwargs_tup is not None:
        given["kwargs_tup"] = kwargs_tup
    if devices is not None:
        given["devices"] = devices
    _check_lengths(len(modules), given)
    if not modules:
        raise IndexError("list index out of range")  # The text of torch.nn.parallel.
    if len(modules) > 1:
        check_not_traced()  # A trace would record the outputs of other threads as constants.
    # All modules can share one dictionary, because a call with ** passes a copy.
    all_kwargs = [{}] * len(modules) if kwargs_tup is None else kwargs_tup
    with argument("inputs, kwargs_tup or devices"):
        targets = _find_devices(inputs, all_kwargs, devices)
    # Run compiled modules one after the other: PyTorch can compile in only one thread at a time.
    in_turn = in_turn or any(map(has_compiled_code, modules))
    group = ReplicaGroup(modules, _IN_TURN if in_turn else "")
    states = CallerState.read(targets).states(targets, in_turn=in_turn)
    # Two threads cannot enter one context at the same time.
    calls = [
        partial(copy_context().run, group.run, index, module, args, kwargs)
        for index, (module, args, kwargs) in enumerate(
            zip(modules, map(_as_args, inputs), all_kwargs, strict=True)
        )
    ]
    clear_old_casts()
    try:
        outcomes = _run_calls(calls, states, in_turn=in_turn)
    finally:
        group.end()  # The system may have refused to start a thread.
    failed = [index for index, each in enumerate(outcomes) if isinstance(each, CapturedError)]
    if failed:
        # If a module waits for one that fails, both fail: raise the error of the latter.
        index = min(failed, key=group.abandoned.__contains__)
        outcome = outcomes[index]
        # The tracebacks refer to frames of this call, and these refer to the exceptions. This
        # cycle would live until the next garbage collection.
        for each in failed:
            if each != index:
                outcomes[each].pop()
        outcomes.clear()
        _reraise(outcome, index, modules[index], targets[index], calls[index].args[-2:])
    return outcomes


def _reraise(
    outcome: CapturedError, index: int, module: object, device: torch.device, arguments: Any
) -> NoReturn:
    """Raise the error of the replica ``index``, with a note if its cause is known."""
    try:
        reraise(outcome.pop(), f"in replica {index} on device {format_device(device)}")
    except EXPLAINED as error:
        explain(error, index, module, device, arguments, get_a_var(arguments))
        raise


def _run_calls(
    calls: Sequence[Callable[[], Any]], states: Sequence[ThreadState], *, in_turn: bool
) -> list[Any]:
    """Run ``calls``, each in its state. Return a result or a CapturedError for each call."""
    if len(calls) == 1:
        # A single call always runs in this thread, where all modes are active.
        return [capture(call_in, states[0], calls[0])]
    if in_turn:
        return _run_in_turn(calls, states)
    pending = [*map(start_in_thread, calls, states)]
    return [each.wait() for each in pending]


def _run_in_turn(calls: Sequence[Callable[[], Any]], states: Sequence[ThreadState]) -> list[Any]:
    """Run ``calls`` one after the other. An interrupt ends them; other outcomes are then None."""
    outcomes: list[Any] = []
    for call, state in zip(calls, states, strict=True):
        outcome = start_in_thread(call, state).wait()
        if isinstance(outcome, CapturedError) and outcome.is_interrupt:
            return [*[None] * len(outcomes), outcome]
        outcomes.append(outcome)
    return outcomes


def _check_lengths(count: int, given: Mapping[str, Sequence[Any]]) -> None:
    for name, values in given.items():
        if type(values) in (list, tuple):
            length = len(values)
        else:
            with argument(name):
                length = len(values)
        if count != length:
            raise AssertionError(
                f"The number of modules {count} is not equal to the number of {name} {length}"
            )


def _as_args(args: Any) -> Sequence[Any]:
    return args if isinstance(args, (list, tuple)) else (args,)


def _find_devices(
    inputs: Sequence[Any],
    all_kwargs: Sequence[Any],
    devices: Sequence[DeviceLike | None] | None,
) -> list[torch.device]:
    if type(devices) is list and None not in devices:
        return as_devices(devices)
    return [
        as_device_or_current(device)
        if device is not None
        else _find_device(inputs[index], all_kwargs[index])
        for index, device in enumerate([None] * len(inputs) if devices is None else devices)
    ]


def _find_device(*nested: Any) -> torch.device:
    """Return the device of the first tensor in ``nested``, or the current device."""
    tensor = get_a_var(nested)
    return as_device_or_current(None if tensor is None else tensor.device)


def format_device(device: torch.device) -> int | str:
    """Return the name of ``device`` in errors: the index, or ``"cpu"``."""
    return str(device) if is_cpu(device) else device.index
