"""Several modules at once, each on its own device and in its own thread."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from ._compat import check_not_traced, exclude_from_compilation
from ._device import DeviceLike, as_device_or_current, is_cpu
from ._legacy_names import _get_device_index as _get_device_index
from ._pytree import Level, traverse
from ._replica import has_compiled_code
from ._threads import (
    CapturedError,
    call_in,
    capture,
    is_fully_transferable,
    isolate_locals,
    reraise,
    run_sequentially,
    start,
    thread_states,
)

__all__ = ["get_a_var", "parallel_apply"]


def get_a_var(obj: object) -> Tensor | None:
    """Find the first tensor in nested tuples, lists and dictionaries.

    Args:
        obj: Anything. Of a dictionary each key is looked at before its value.

    Returns:
        The very tensor, or None if there is none.

    Raises:
        RecursionError: Containers are nested deeper than the recursion limit.
    """
    found: list[Tensor] = []
    traverse(_search(obj, found))
    return found[0] if found else None


@exclude_from_compilation
def parallel_apply(
    modules: Sequence[Callable[..., Any]],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[Mapping[str, Any]] | None = None,
    devices: Sequence[DeviceLike | None] | None = None,
    *,
    in_turn: bool = False,
) -> list[Any]:
    """Call ``modules[i]`` with ``inputs[i]`` on ``devices[i]``, all at the same time.

    The first module runs in the calling thread, unless modes are active there that the others
    would not see; the others have a thread each. Those that no thread has begun when the first
    has ended run in the calling thread, too. Every one works in the state of the calling thread
    (grad mode, autocast, streams, context variables, ...; ``_threads.state.ThreadState`` lists
    it), and nothing that it changes there comes back. Where replicas run compiled code (see
    ``replicate``), all run one after the other, as PyTorch compiles in one thread at a time.

    Args:
        modules: ``k`` modules, at least one.
        inputs: ``k`` inputs. A list or tuple holds the positional arguments; anything else is
            the one argument.
        kwargs_tup: ``k`` mappings of keyword arguments; None for no such arguments.
        devices: ``k`` current devices for the modules. None stands for the device of the
            module's first tensor among its inputs, then its keyword arguments, and for the
            caller's current device where there is none.
        in_turn: Whether the calling thread calls the modules one after the other. No thread
            then waits for another's interpreter lock, and the devices still compute side by side
            where the accelerator lets the host go on. It is faster where an operator takes less
            host time than handing over the interpreter lock, some 60 µs. It is slower where
            operators take longer on the host, as on the CPU, and where a module waits for its
            device. Modules must not wait for each other.

    Returns:
        The ``k`` results, in the order of ``modules``. It returns when all modules have, but
        does not wait for the devices.

    Raises:
        AssertionError: The lengths differ.
        IndexError: There are no modules.
        Exception: A module raised one; if several did, that of the first in ``modules``. It
            has the same type where that can be built from a text, else it is a RuntimeError;
            it says which replica failed and where, and the original is its cause. It is
            raised after all modules have ended.
        BaseException: A module raised one that is no Exception: that very object. In turn, later
            modules have not begun then.
        RuntimeError: torch.jit.trace records a call of several modules.

    Note:
        In turn, a module that waits for a later one waits for ever. An interrupt (Ctrl-C) then
        shows the line that waits.

        An interrupt of the calling thread ends its own module, and is raised when the others
        have ended. While it only waits for the others it is raised at once; they run to their
        end, and nobody sees what they return.
    """
    _check_length(modules, "inputs", inputs)
    if kwargs_tup is not None:
        _check_length(modules, "kwargs_tup", kwargs_tup)
    if devices is not None:
        _check_length(modules, "devices", devices)
    if len(modules) > 1:
        check_not_traced()  # It would record the outputs of other threads as constants.
    _ = modules[0]  # Where there is none the container raises an IndexError of its own.
    # One dictionary will do for all modules: a call with ** hands on a copy.
    all_kwargs = [{}] * len(modules) if kwargs_tup is None else kwargs_tup
    targets = _find_devices(inputs, all_kwargs, devices)
    calls = [
        partial(state.context.run, call_in, state, module, _as_args(args), kwargs)
        for state, module, args, kwargs in zip(
            thread_states(targets), modules, inputs, all_kwargs, strict=True
        )
    ]
    outcomes = _run(calls, modules, in_turn=in_turn)
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, CapturedError):
            # The traceback of what is raised holds this frame, and `outcomes` the exceptions: a
            # cycle, which would keep them alive until the collector runs.
            outcomes.clear()
            reraise(outcome.pop(), f"in replica {index} on device {_shown(targets[index])}")
    return outcomes


def _run(
    calls: Sequence[Callable[[], Any]], modules: Sequence[Any], *, in_turn: bool
) -> list[Any]:
    """Return a result or a CapturedError for each of ``calls``."""
    if len(calls) == 1:
        # No other module could miss the modes that are active here.
        return [capture(calls[0])]
    # PyTorch compiles in one thread at a time.
    if in_turn or any(map(has_compiled_code, modules)):
        return run_sequentially(calls)
    return _outcomes(calls)


def _outcomes(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run ``calls`` at the same time; give a result or CapturedError for each when all have ended.

    caller    1 wake all ──► 2 run the first ──► 3 run what sleeps ──► 4 wait for the rest
    worker    ····· wakes ·······► run its own, unless the caller has taken it
    """
    here = 1 if is_fully_transferable() else 0
    # 1. Before the first one runs here: modules may wait for each other.
    pending = [start(call) for call in calls[here:]]
    with isolate_locals() as clear_locals:
        # 2.
        outcomes = [capture(call) for call in calls[:here]]
        # 3. From the end, since the threads that were woken last are likeliest to be asleep.
        #    The question is asked anew: a module that ran here may have left a mode behind.
        for other in reversed(pending):
            if is_fully_transferable():  # Waking a thread takes longer than a small module does.
                clear_locals()
                other.run_if_unclaimed()
    # 4.
    return outcomes + [other.wait() for other in pending]


def _search(obj: object, found: list[Tensor]) -> Level | None:
    if isinstance(obj, Tensor):
        found.append(obj)
    elif isinstance(obj, dict):
        return _until_found(chain.from_iterable(obj.items()), found)
    elif isinstance(obj, (list, tuple)):
        return _until_found(obj, found)
    return None


def _until_found(parts: Iterable[object], found: list[Tensor]) -> Level:
    for part in parts:
        below = _search(part, found)
        if below is not None:
            yield below
        if found:
            return


def _check_length(modules: Sequence[Any], name: str, values: Sequence[Any]) -> None:
    if len(modules) != len(values):
        raise AssertionError(
            f"The number of modules {len(modules)} is not equal to "
            f"the number of {name} {len(values)}"
        )


def _as_args(args: Any) -> Sequence[Any]:
    return args if isinstance(args, (list, tuple)) else (args,)


def _find_devices(
    inputs: Sequence[Any],
    all_kwargs: Sequence[Any],
    devices: Sequence[DeviceLike | None] | None,
) -> list[torch.device]:
    """Give each module's device."""
    return [
        as_device_or_current(device)
        if device is not None
        else _device_of(inputs[index], all_kwargs[index])
        for index, device in enumerate(devices or [None] * len(inputs))
    ]


def _device_of(*nested: Any) -> torch.device:
    tensor = get_a_var(nested)
    return as_device_or_current(None if tensor is None else tensor.device)


def _shown(device: torch.device) -> int | str:
    return str(device) if is_cpu(device) else device.index
