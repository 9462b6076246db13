"""scatter and gather of nested containers, one leaf at a time."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from spec_tests.machine.clauses import exception_of
from spec_tests.oracle import comm
from spec_tests.oracle.chunk_sizes import even_chunks
from spec_tests.oracle.functions import Gather, Scatter


def scatter(inputs: Any, target_gpus: Sequence[comm.DeviceLike], dim: int = 0) -> Any:
    """Return a value for each device: chunks of the tensors, and all other leaves unchanged.

    Devices without a chunk get no value.
    """
    values = [
        _value_for_device(inputs, target_gpus, dim, index) for index in range(len(target_gpus))
    ]
    count = min(_chunk_counts(inputs, len(target_gpus), dim), default=len(target_gpus))
    return tuple(values[:count]) if isinstance(inputs, Tensor) else values[:count]


def _chunk_counts(value: Any, device_count: int, dim: int) -> list[int]:
    """Return, for each tensor in ``value``, the number of its chunks."""
    if isinstance(value, Tensor):
        return [len(even_chunks(value.size(dim), device_count))]
    return [count for each in _members(value) for count in _chunk_counts(each, device_count, dim)]


def _value_for_device(value: Any, devices: Sequence[comm.DeviceLike], dim: int, index: int) -> Any:
    if isinstance(value, Tensor):
        chunks = Scatter.apply(devices, None, dim, value)
        return chunks[index] if index < len(chunks) else None
    members = [_value_for_device(each, devices, dim, index) for each in _members(value)]
    return _rebuild(value, members) if members else value


def _members(container: Any) -> list[Any]:
    if isinstance(container, dict):
        return list(container.values())
    return list(container) if isinstance(container, (tuple, list)) else []


def _rebuild(container: Any, members: list[Any]) -> Any:
    if isinstance(container, dict):
        return type(container)(zip(container, members, strict=True))
    if hasattr(container, "_fields"):
        return type(container)(*members)
    return members if isinstance(container, list) else tuple(members)


def scatter_kwargs(
    inputs: Any,
    kwargs: Mapping[str, Any] | None,
    target_gpus: Sequence[comm.DeviceLike],
    dim: int = 0,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Scatter positional and keyword arguments. Pad the shorter result with empty arguments."""
    positional = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(positional), len(named))
    return (
        (*positional, *[()] * (count - len(positional))),
        (*named, *[{} for _ in range(count - len(named))]),
    )


def gather(outputs: Sequence[Any], target_device: comm.DeviceLike, dim: int = 0) -> Any:
    """Return one value of the class of the first output, with concatenated tensors."""
    first = outputs[0]
    if isinstance(first, Tensor):
        return _gather_tensors(outputs, target_device, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        return _gather_dicts(outputs, target_device, dim)
    members = [gather(each, target_device, dim) for each in zip(*outputs, strict=True)]
    # The constructor of a named tuple may have other parameters than its fields.
    make = type(first)._make if hasattr(first, "_make") else type(first)
    return make(members)


def _gather_dicts(outputs: Sequence[Any], target: comm.DeviceLike, dim: int) -> Any:
    first = outputs[0]
    if {len(each) for each in outputs} != {len(first)}:
        raise exception_of("scatter_gather.gather.keys")
    return type(first)(
        [(key, gather([each[key] for each in outputs], target, dim)) for key in first]
    )


def _gather_tensors(outputs: Sequence[Tensor], target: comm.DeviceLike, dim: int) -> Tensor:
    first = outputs[0]
    if first.dim() == 0 and dim != 0:
        # A 0-dim tensor has no dimension `dim`: `size` raises the expected IndexError.
        first.size(dim)
    values: dict[str, object]
    for index, each in enumerate(outputs):
        if each.dim() != first.dim():
            values = {"index": index, "count": each.dim(), "expected": first.dim()}
            raise exception_of("scatter_gather.gather.mismatch", 1, **values)
        expected = [*first.shape]
        if expected:
            expected[dim] = each.shape[dim]
        if list(each.shape) != expected:
            values = {"index": index, "shape": [*each.shape], "expected": expected}
            raise exception_of("scatter_gather.gather.mismatch", 0, **values)
    return Gather.apply(target, dim, *outputs)
