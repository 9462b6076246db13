"""Device arguments, current devices and streams, and the devices of a wrapper.

No other module compares device types, or converts -1, a deprecated name of the CPU. "The
accelerator" is the device type that ``torch.accelerator`` reports at the time of the call. An
integer is an ordinal of the accelerator. A device of an unavailable type counts as the
accelerator's device with that index: without CUDA, ``"cuda:1"`` is its device 1. If a second
accelerator is available, such as CUDA beside a vendor's back end, its devices keep their type.

A ``DeviceLike`` is an ordinal, a string or a ``torch.device``. Five functions convert it:

- :func:`as_device_or_current`: a DeviceLike or None -> a ``torch.device``
- :func:`as_target`: the same, or -1 -> a ``torch.device``
- :func:`device_index`: a DeviceLike or None -> an ordinal
- :func:`device_at`: an ordinal -> a ``torch.device`` of an accelerator
- :func:`type_to_use`: a DeviceLike or None -> the type of an accelerator
"""

import functools
import inspect
import reprlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from numbers import Integral
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeGuard, TypeVar

import torch
from torch import Tensor, nn

from ._arguments import argument, as_list
from ._settings import call_with_setting
from ._torch_private import exclude_from_compilation

DeviceLike = int | str | torch.device
_R = TypeVar("_R")

CPU = torch.device("cpu")

#: The largest index of a device. PyTorch keeps 8 bits of an index: it takes 256 for 0.
_MAX_INDEX = 127


def accelerator_type() -> str | None:
    """Return the type of the accelerator, such as ``"cuda"``, or None if none is available."""
    accelerator = torch.accelerator.current_accelerator()
    return accelerator.type if accelerator is not None and _is_usable(accelerator.type) else None


@cache
def _is_usable(kind: str) -> bool:
    """Return whether ``kind`` is the type of an accelerator that is available.

    The result is cached, because queries of the driver are slow.
    """
    if kind == "cpu":
        return False
    try:
        module = torch.get_device_module(kind)
    except RuntimeError:  # PyTorch has no device module for types such as "meta".
        return False
    # A back end may lack this function. `torch.accelerator` itself only needs `device_count`.
    is_available = getattr(module, "is_available", None)
    return device_count(kind) > 0 if is_available is None else bool(is_available())


def device_count(kind: str | None = None) -> int:
    """Return the number of devices of the type ``kind``, by default of the accelerator.

    Return 0 if there is no accelerator. Raise RuntimeError if the back end does not offer this
    number.
    """
    try:
        count: int = runtime(kind).device_count()
    except AttributeError as error:  # torch.accelerator calls the back end's device module.
        raise RuntimeError(f"the back end cannot count its devices: {error}") from error
    return count


def runtime_of(device: torch.device) -> Any:
    """Return an object with the functions of ``torch.accelerator`` for the type of ``device``."""
    return runtime(device.type)


def runtime(kind: str | None) -> Any:
    """Return an object with the functions of ``torch.accelerator`` for the device type ``kind``.

    None stands for the accelerator.
    """
    accelerator = torch.accelerator.current_accelerator()
    if kind is None or accelerator is None or accelerator.type == kind:
        return torch.accelerator
    return _second_runtime(kind)


def runtimes_with_streams(devices: Iterable[torch.device]) -> dict[torch.device, Any]:
    """Return :func:`runtime_of` for those of ``devices`` that have streams.

    Each device type is looked up once. Raise RuntimeError if one of these devices does not exist.
    """
    runtimes: dict[str, Any] = {}
    counts: dict[str, int] = {}
    found: dict[torch.device, Any] = {}
    for device in devices:
        kind = device.type
        if kind not in runtimes:
            runtimes[kind] = runtime(kind) if has_streams(device) else None
            counts[kind] = 0 if runtimes[kind] is None else device_count(kind)
        if runtimes[kind] is not None:
            check_exists(device, counts[kind])
            found[device] = runtimes[kind]
    return found


@cache
def _second_runtime(kind: str) -> SimpleNamespace:
    """Return the functions of ``torch.accelerator`` for a type that is not the accelerator's."""
    module = torch.get_device_module(kind)
    return SimpleNamespace(
        current_device_index=module.current_device,
        current_stream=module.current_stream,
        device_count=module.device_count,
        set_device_index=module.set_device,
        set_stream=module.set_stream,
    )


def check_exists(device: torch.device, count: int | None = None) -> None:
    """Raise RuntimeError if ``device`` is not one of the ``count`` devices of its type.

    By default the devices are counted. A back end may end the process if it is asked for the
    stream of a missing device.
    """
    count = device_count(device.type) if count is None else count
    if device.index >= count:
        raise RuntimeError(
            f"There is no device {device}: the number of {device.type} devices is {count}"
        )


def type_to_use(device: DeviceLike | None) -> str | None:
    """Return the type of ``device`` if it can be used, else the type of the accelerator.

    The CPU counts as a type that cannot be used. The result is None if there is no accelerator.
    """
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device) and _is_usable(device.type):
        return device.type
    return accelerator_type()


def accelerator_in_use() -> str | None:
    """Return the type of the accelerator if this process has initialized it, else None.

    The result is None in a forked child, which cannot use the context of its parent.
    """
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return None
    is_initialized = getattr(torch.get_device_module(accelerator), "is_initialized", bool)
    return accelerator.type if is_initialized() else None


def is_cpu(device: DeviceLike | None) -> bool:
    """Return whether ``device`` is the CPU (``"cpu"``, ``"cpu:0"``, a ``torch.device``)."""
    if isinstance(device, str):
        device = torch.device(device)
    return type(device) is torch.device and device.type == "cpu"


def is_cuda(device: torch.device) -> bool:
    """Return whether ``device`` is a CUDA device. impl compares only these by memory and cores."""
    return device.type == "cuda"


def alignment_on(device: torch.device) -> int:
    """Return the alignment of new tensors on ``device`` in bytes.

    CUDA's allocator aligns to 512 bytes, PyTorch's CPU allocator to 64. For other accelerators 64
    bytes are assumed.
    """
    return 512 if is_cuda(device) else 64


def is_on_cpu(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def is_on_accelerator(tensor: Tensor) -> bool:
    """Return whether ``tensor`` is on an accelerator that can be used."""
    return _is_usable(tensor.device.type)


def is_minus_one(device: DeviceLike | None) -> bool:
    """Return whether ``device`` is -1, the deprecated name of the CPU as a target."""
    return is_ordinal(device) and device == -1


def is_of_type(device: torch.device, device_type: str | None) -> bool:
    """Return whether ``device`` is of the type ``device_type``; False for None."""
    return device.type == device_type


def check_device_type(device: torch.device, accelerator: str) -> None:
    """Raise AssertionError if ``device`` is not of the type ``accelerator``."""
    if device.type != accelerator:
        raise AssertionError(
            f"Expected current accelerator type {accelerator} to match device type {device.type}"
        )


def device_index(
    device: DeviceLike | None, optional: bool = False, allow_cpu: bool = False
) -> int:
    """Return the ordinal of ``device``. No check is made that the ordinal exists.

    With ``optional`` None, or a device without index, is the current device. With ``allow_cpu``
    the ordinal of the CPU is -1. Without these options, raise ValueError for these devices. Raise
    RuntimeError for an invalid string.
    """
    if is_ordinal(device) and not optional:
        return int(device)
    if isinstance(device, str):
        device = torch.device(device)
    if is_cpu(device):
        if allow_cpu:
            return -1
        raise ValueError(f"Expected a non cpu device, but got: {device}")
    if optional:
        return as_device_or_current(device).index
    index = device.index if isinstance(device, torch.device) else None
    if index is None:
        raise ValueError(
            f"Expected a torch.device with a specified index or an integer, but got:{device}"
        )
    return index


def is_ordinal(device: object) -> TypeGuard[int]:
    """Return whether ``device`` is an integer of Python or NumPy, and not True or False."""
    kind = type(device)
    return kind is int or (issubclass(kind, Integral) and not issubclass(kind, bool))


def device_at(ordinal: int, kind: str | None = None) -> torch.device:
    """Return the device of the type ``kind``, by default of the accelerator, with this ordinal.

    Raise RuntimeError if ``ordinal`` is negative or above 127, or there is no accelerator.
    """
    if ordinal < 0:
        raise RuntimeError(f"Expected non-negative device index, but got {ordinal}")
    if ordinal > _MAX_INDEX:
        raise RuntimeError(f"There is no device with the index {ordinal}")
    return torch.device(kind or _require_accelerator(), ordinal)


def as_device_or_current(device: DeviceLike | None) -> torch.device:
    """Return ``device`` as a ``torch.device``: the CPU, or a device of an accelerator.

    None, or a device without index, is the current device. Raise the errors of :func:`device_at`,
    RuntimeError for an invalid string, and TypeError if ``device`` is an object that names no
    device.
    """
    if (
        type(device) is torch.device
        and _is_usable(device.type)
        and device.index is not None
        and device.index >= 0
    ):
        return device  # This is the usual case, and the checks below take longer.
    if isinstance(device, str):
        device = torch.device(device)
    if is_ordinal(device):
        return device_at(int(device))
    if is_cpu(device):
        return CPU
    if device is not None and not isinstance(device, torch.device):
        name = type(device).__name__
        raise TypeError(f"a device must be an int, a str, a torch.device or None, not {name}")
    index = None if device is None else device.index
    kind = type_to_use(device)
    return current_device(kind) if index is None else device_at(index, kind)


def as_target(device: DeviceLike | None, *, warns: bool = True) -> torch.device:
    """Convert ``device`` as :func:`as_device_or_current` does, and the deprecated -1 to the CPU.

    With ``warns``, -1 issues a FutureWarning that points to the caller of the calling function.
    """
    if not is_minus_one(device):
        return as_device_or_current(device)
    if warns:
        warnings.warn(
            "Using -1 to represent CPU tensor is deprecated. Please use a device object or string "
            'instead, e.g., "cpu".',
            FutureWarning,
            stacklevel=3,
        )
    return CPU


def current_device(kind: str | None = None) -> torch.device:
    """Return the current device of the type ``kind``, by default of the accelerator.

    Raise RuntimeError if there is no accelerator.
    """
    kind = kind or _require_accelerator()
    return torch.device(kind, runtime(kind).current_device_index())


def call_on_device(
    device: torch.device, function: Callable[..., _R], *args: Any, **kwargs: Any
) -> _R:
    """Call ``function(*args, **kwargs)`` while ``device`` is current.

    For the CPU the current device does not change. The earlier device is restored, even after an
    interrupt.
    """
    if is_cpu(device):
        return function(*args, **kwargs)
    accelerator = runtime_of(device)
    before = accelerator.current_device_index()
    set_index = accelerator.set_device_index
    return call_with_setting(set_index, device.index, before, function, *args, **kwargs)


def has_streams(device: torch.device) -> bool:
    """Return whether kernels on ``device`` run on streams that impl can choose."""
    return device.type != "mps" and _is_usable(device.type)


def _require_accelerator() -> str:
    kind = accelerator_type()
    if kind is None:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return kind


# Current streams, and side streams for copies from the CPU.


def call_on_stream(stream: torch.Stream, function: Callable[..., _R], *args: Any) -> _R:
    """Call ``function(*args)`` while ``stream`` and its device are current.

    The earlier stream and device are restored, even after an interrupt. ``with stream`` is not
    safe here: it stores the state to restore in the stream object, so two threads with the same
    current stream would restore each other's device and stream.
    """
    streams = {stream: current_stream(stream.device)}
    result: _R = call_on_device(stream.device, call_on_streams, streams, function, *args)
    return result


def call_on_streams(
    streams: Mapping[torch.Stream, torch.Stream], function: Callable[..., _R], *args: Any
) -> _R:
    """Call ``function(*args)`` while the keys of ``streams`` are current, each on its device.

    Each value is the current stream of the same device. It is restored, even after an interrupt.
    The current device does not change. There is at most one stream for each device.
    """
    runtimes = [*runtimes_with_streams(stream.device for stream in streams).values()]
    setters = [each.set_stream for each in runtimes]
    distinct = {id(each): each for each in runtimes}.values()
    devices = [(each.set_device_index, each.current_device_index()) for each in distinct]

    def set_streams(streams: Iterable[torch.Stream]) -> None:
        for set_stream, stream in zip(setters, streams, strict=True):
            set_stream(stream)
        for set_device_index, index in devices:  # `set_stream` has changed the current devices.
            set_device_index(index)

    return call_with_setting(set_streams, [*streams], [*streams.values()], function, *args)


def is_stream(value: object) -> bool:
    """Return whether ``value`` is a stream.

    Where a back end replaces ``torch.Stream``, PyTorch's own functions still return streams of the
    replaced class.
    """
    return isinstance(value, torch.Stream) or (
        accelerator_type() is not None
        and isinstance(value, type(torch.accelerator.current_stream()))
    )


def current_stream(device: torch.device) -> torch.Stream:
    """Return the current stream of ``device``, a device of an accelerator that exists."""
    stream: torch.Stream = runtime_of(device).current_stream(device.index)
    return stream


def current_stream_by_device(
    devices: Iterable[torch.device],
) -> dict[torch.device, torch.Stream]:
    """Return the current streams of those of ``devices`` that have streams.

    Raise RuntimeError if one of them does not exist.
    """
    runtimes = runtimes_with_streams(devices).items()
    return {device: each.current_stream(device.index) for device, each in runtimes}


def set_current_streams(streams: Sequence[torch.Stream]) -> None:
    """Make each of ``streams`` current on its device. The current device does not change."""
    for stream in streams:
        if stream != current_stream(stream.device):
            accelerator = runtime_of(stream.device)
            device = accelerator.current_device_index()
            accelerator.set_stream(stream)
            accelerator.set_device_index(device)


def side_stream(device: torch.device) -> torch.Stream | None:
    """Return the stream of ``device`` for copies from the CPU; None if side streams do not work.

    All calls and threads share one stream per device. The allocator reuses memory only on the
    stream that allocated it, so a new stream for each call would never reuse memory. Raise
    RuntimeError if there is no such device.
    """
    known = _side_streams.get(device)
    if known is not None:
        return known
    if not has_streams(device):
        return None
    check_exists(device)
    if not _has_side_streams(device):
        return None
    # If two threads both create a first stream, `setdefault` returns the same one to both.
    return _side_streams.setdefault(device, torch.Stream(device))


@cache
def _has_side_streams(device: torch.device) -> bool:
    """Return whether the operations that a copy on a side stream needs work on ``device``."""
    try:
        stream = torch.Stream(device)
        stream.wait_stream(stream)
        torch.empty(0, device=device).record_stream(stream)
    except (RuntimeError, AttributeError):  # A NotImplementedError is a RuntimeError.
        return False
    return True


_side_streams: dict[torch.device, torch.Stream] = {}


# Use of the streams of a forward pass in its backward pass.
#
# When autograd runs a node, it sets the current stream only on the device of the first output of
# the node's forward. On all other devices the default stream is current. If backward copies a
# gradient from another device, the copy would read it on the default stream. But the memory of
# the gradient belongs to the stream that created it: as soon as the gradient is freed, the
# allocator may reuse the memory on that stream, before the copy has read it. Nodes that only
# copy to other devices are not affected: they read on the node's own stream, and autograd
# records the use of the memory.


_Backward = Callable[..., Any]


def save_streams(ctx: Any, devices: Iterable[torch.device]) -> None:
    """Save the current streams of ``devices`` in ``ctx``."""
    ctx.streams = [*current_stream_by_device(devices).values()]


def wait_for_grad(grad: Tensor) -> Tensor:
    """Make the current stream of the running node wait for ``grad``, and return ``grad``.

    The next node waits only for the stream of this node. This stream may be on another device
    than ``grad``.
    """
    if has_streams(grad.device):
        here = current_device(type_to_use(grad.device))
        if grad.device != here:
            current_stream(here).wait_stream(current_stream(grad.device))
    return grad


def with_saved_streams(backward: _Backward) -> _Backward:
    """Decorate ``backward`` to run on the streams that :func:`save_streams` saved in ``ctx``."""

    @exclude_from_compilation
    @functools.wraps(backward)
    def run(ctx: Any, *grads: Any) -> Any:
        before = [current_stream(stream.device) for stream in ctx.streams]
        if before == ctx.streams:
            return backward(ctx, *grads)
        # Restore the streams afterwards, because this thread also runs other nodes.
        set_current_streams(ctx.streams)
        try:
            return backward(ctx, *grads)
        finally:
            set_current_streams(before)

    return run


# Selection of the devices of a data-parallel module, and comparison of their sizes.


#: A warning is issued if the ratio of the memory, or of the cores, of two devices is smaller.
_BALANCED = 0.75

_IMBALANCE = """
    There is an imbalance between your GPUs. You may want to exclude GPU {} which
    has less than 75% of the memory or cores of GPU {}. You can do so by setting
    the device_ids argument to DataParallel, or by setting the CUDA_VISIBLE_DEVICES
    environment variable."""

#: An ordinal of the accelerator, a device of a second accelerator, or the CPU. The device need not
#: exist.
DeviceId = int | torch.device


class Placement(NamedTuple):
    """The devices of one data-parallel module. The devices need not exist."""

    device_ids: list[DeviceId]  # In the order of the chunks.
    output_device: DeviceId  # -1 is a deprecated name of the CPU.
    source: torch.device  # The first device. The module must be on it.


@exclude_from_compilation
def choose_devices(
    device_ids: Sequence[DeviceLike] | None,
    output_device: DeviceLike | None,
    module: nn.Module | None = None,
) -> Placement | None:
    """Convert the device arguments of ``DataParallel`` or ``data_parallel`` to a placement.

    If ``device_ids`` is None, all devices are used: those of the accelerator that has the first
    parameter of ``module``, or those of PyTorch's accelerator if the parameter is on the CPU.

    Return None if no accelerator has device indices and ``device_ids`` does not name the CPU.

    Raises:
        IndexError: ``device_ids`` is empty.
        ValueError: ``device_ids`` mixes the CPU and other devices.
        RuntimeError: A device string is invalid, or ``device_ids`` is on the CPU, and
            ``output_device`` on an accelerator that does not exist.
        TypeError: ``device_ids`` is not a sequence, or an object names no device.
    """
    if device_ids is not None:
        if isinstance(device_ids, (str, torch.device)) or is_ordinal(device_ids):
            raise TypeError(
                "device_ids must be a sequence of devices, such as [0, 1] or ['cpu', 'cpu'], "
                f"not {device_ids!r}"
            )
        device_ids = as_list("device_ids", device_ids)  # It may be an iterator.
        if device_ids and all(map(is_cpu, device_ids)):
            with argument(f"output_device={reprlib.repr(output_device)}"):
                output = _as_device_id(CPU if output_device is None else output_device)
                as_target(output, warns=False)  # Raises RuntimeError without an accelerator.
            return Placement([CPU] * len(device_ids), output, CPU)
    if device_ids is None:
        parameter = next(module.parameters(), None) if isinstance(module, nn.Module) else None
        kind = type_to_use(None if parameter is None else parameter.device)
    else:
        kind = type_to_use(device_ids[0] if device_ids else None)
    if kind is None or kind == "mps":  # Devices of Apple's back end have no indices.
        for device in filter(is_cpu, device_ids or ()):
            device_index(device)  # Raises ValueError.
        return None
    if device_ids is None:
        device_ids = [torch.device(kind, ordinal) for ordinal in range(device_count(kind))]
    with argument("device_ids"):
        ids = [*map(_as_device_id, device_ids)]
        ordinals = [*map(device_index, ids)]  # Raises ValueError for the CPU.
        source = device_at(ordinals[0], kind)
    output = _as_device_id(device_ids[0] if output_device is None else output_device)
    return Placement(ids, output, source)


def check_balance(device_ids: Sequence[DeviceLike]) -> None:
    """Warn if the devices differ much in memory or cores.

    The warning points to the caller of the calling function. A device without index is the current
    device. Raise ValueError if ``device_ids`` is empty or contains the CPU.
    """
    ordinals = [device_index(device, optional=True) for device in device_ids]
    kind = type_to_use(next(iter(device_ids), None))
    get_properties = torch.get_device_module(kind).get_device_properties
    properties = [*map(get_properties, ordinals)]
    for sizes in (
        [device.total_memory for device in properties],
        [device.multi_processor_count for device in properties],
    ):
        if min(sizes) < _BALANCED * max(sizes):
            small, large = (ordinals[sizes.index(size)] for size in (min(sizes), max(sizes)))
            warnings.warn(_IMBALANCE.format(small, large), stacklevel=3)
            return


def warn_of_ignored_devices() -> None:
    """Warn that ``device_ids`` has no effect. The warning points to the first frame outside impl.

    Python shows a warning once a line. In a line of impl it would be shown once a process.
    """
    package = __name__.rpartition(".")[0] + "."
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith(package):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        "device_ids is ignored, because there is no accelerator with device indices: DataParallel "
        "only calls the module. Name the CPU for replicas on the CPU: device_ids=['cpu', 'cpu']",
        UserWarning,
        stacklevel=level,
    )


def _as_device_id(device: DeviceLike | None) -> DeviceId:
    """Return an ordinal if ``device`` is of PyTorch's accelerator, else a ``torch.device``.

    None, or a device without index, is the current device.
    """
    if is_ordinal(device):
        return int(device)
    found = as_device_or_current(device)
    return found.index if is_of_type(found, accelerator_type()) else found
