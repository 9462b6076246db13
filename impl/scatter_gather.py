"""Splitting nested arguments over devices, and joining what the replicas return.

Letters: ``N`` is the extent of a tensor along the dimension it is split or joined at, ``k`` the
number of devices.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ._comm import (
    attached_copies,
    cat_on_device,
    check_gather_inputs,
    check_weights,
    chunk_lengths,
    detached_copies,
    is_wrapper,
    split_into_views,
    to_device,
    wrapper_to_device,
)
from ._compat import check_not_traced, exclude_from_compilation
from ._device import DeviceLike, as_device_or_current, is_minus_one, is_on_cpu
from ._legacy_names import _is_namedtuple as _is_namedtuple
from ._legacy_names import is_namedtuple as is_namedtuple
from ._pytree import (
    CopiedLeaf,
    GatheredLeaf,
    InputLeaves,
    Leaf,
    OutputLeaves,
    Pieces,
    SplitLeaf,
    cat_packed,
    format_path,
    split_packed,
)
from .functions import Gather, Scatter

__all__ = ["gather", "scatter", "scatter_kwargs"]

_PLAIN = frozenset((Tensor, nn.Parameter))


@exclude_from_compilation
def scatter(
    inputs: Any,
    target_gpus: Iterable[DeviceLike],
    dim: int = 0,
    *,
    chunk_sizes: Sequence[float] | None = None,
) -> Sequence[Any]:
    """Split every tensor in a nested value, one chunk for each device.

    Tuples, lists, dictionaries, named tuples and dataclasses are built anew for each device with
    the chunks of their tensors; a dataclass without a tensor, an empty container and any other
    object go to each device by reference. A packed sequence is split by sequence, whatever
    ``dim`` is. A tensor whose class has a ``__torch_dispatch__``, as nested and masked tensors
    have, is split by the ``chunk`` of its class, and by ``split_with_sizes`` if ``chunk_sizes``
    are given. A 0-dim tensor, and what is marked by ``Whole``, is copied to each device. Beside
    tensors of another extent, a tensor with ``k`` rows has one for each device that gets a chunk
    of those; the others are left out.

    Args:
        inputs: Any nested value; ``SplitAlong`` gives a part of it a ``dim`` of its own.
        target_gpus: ``k`` devices in output order. The same device may appear twice.
        dim: The dimension to split. Negative values count from the last one.
        chunk_sizes: ``k`` sizes, or shares of any sum: ``N`` rows are dealt out in proportion.
            By default every chunk but the last has ``ceil(N / k)`` rows.

    Returns:
        One value for each chunk, at most ``k``; a tuple for a bare tensor, else a list. Where
        nothing is split there are ``k``. A chunk whose device holds its tensor already is a
        view of it, another one is a copy that keeps dense strides. A tensor that goes to each
        device is itself, or a view, on its own device, and elsewhere a row-major copy.
        Gradients flow back to the tensors; those of a copied tensor are summed.

    Raises:
        ValueError: Two tensors give different numbers of chunks; ``chunk_sizes`` has not ``k``
            entries, has a negative one, or only zeros; a device carries no index.
        IndexError: A tensor has no dimension ``dim``.
        RuntimeError: A tensor is given and no device; a nested tensor is ragged along ``dim``;
            torch.jit.trace records the call.
    """
    (column,) = _scattered([(inputs, "inputs")], target_gpus, dim, chunk_sizes)
    return tuple(column) if isinstance(inputs, Tensor) else column


@exclude_from_compilation
def scatter_kwargs(
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    target_gpus: Iterable[DeviceLike],
    dim: int = 0,
    *,
    chunk_sizes: Sequence[float] | None = None,
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """Split positional and keyword arguments together, as :func:`scatter` splits one value.

    Args:
        inputs: The positional arguments.
        kwargs: The keyword arguments; None for none.
        target_gpus: As for :func:`scatter`.
        dim: As for :func:`scatter`.
        chunk_sizes: As for :func:`scatter`.

    Returns:
        The positional and the keyword arguments of each replica, two tuples of one length: the
        number of chunks, ``k`` where nothing is split, 0 where there are no arguments at all.

    Raises:
        ValueError: As for :func:`scatter`.
        IndexError: As for :func:`scatter`.
        RuntimeError: As for :func:`scatter`.
    """
    roots = [(inputs, "args"), (kwargs, "kwargs")]
    present = [root for root in roots if root[0]]
    columns = iter(_scattered(present, target_gpus, dim, chunk_sizes))
    all_args = next(columns) if inputs else []
    all_kwargs = next(columns) if kwargs else []
    all_args += [() for _ in all_kwargs[len(all_args) :]]
    all_kwargs += [{} for _ in all_args[len(all_kwargs) :]]
    return tuple(all_args), tuple(all_kwargs)


@exclude_from_compilation
def gather(outputs: Sequence[Any], target_device: DeviceLike, dim: int = 0) -> Any:
    """Join the nested outputs of replicas, tensor by tensor, on one device.

    Containers are built anew in the first output's likeness: a tuple or list subclass or any
    other iterable by calling its class with one iterable, a mapping and a dataclass with all
    they hold beside. Packed sequences become the one that holds their sequences in the order
    given. Any other value stays beside its like in a list, in the order of the replicas; so do
    iterables that fail to be iterated over, or to be built.

    Args:
        outputs: What each replica returned, at least one.
        target_device: Where the result is wanted; the CPU, too.
        dim: The dimension to join along. Scalars become a vector, with a warning.

    Returns:
        One value. Its tensors are new and live on ``target_device``, or on the CPU where all
        the replicas' tensors did. Gradients flow back to the replicas' tensors.

    Raises:
        IndexError: ``outputs`` is empty, or a tensor has no dimension ``dim``.
        ValueError: Where some replicas returned None, or a tensor, others did not;
            dictionaries or sequences differ in length.
        KeyError: A dictionary lacks a key that the first replica's has.
        RuntimeError: Tensors differ in shape elsewhere than at ``dim``.

    Warns:
        UserWarning: Scalars became a vector; iterables could not be joined, and are listed.
    """
    found = OutputLeaves()
    root = found.flatten(outputs, "output")
    pieces: dict[Leaf, list[Any]] = {
        leaf: [_join_leaf(leaf, target_device, dim)] for leaf in found.gathered
    }
    return root.unflatten(1, pieces)[0]


def _scattered(
    roots: Sequence[tuple[Any, str]],
    devices: Iterable[DeviceLike],
    dim: int,
    weights: Sequence[float] | None,
) -> list[list[Any]]:
    """Split several values together; for each a list with what each replica gets."""
    targets = list(devices)
    if weights is not None:
        check_weights(weights, len(targets))
    # Everything is taken apart before anything is copied: all tensors together decide how many
    # replicas get work, and extents that do not fit are refused before any device has work.
    leaves = InputLeaves()
    nodes = [leaves.flatten(value, dim, name) for value, name in roots]
    count, pieces = _distribute(leaves, targets, weights)
    return [node.unflatten(count, pieces) for node in nodes]


def _distribute(
    leaves: InputLeaves, devices: Sequence[DeviceLike], weights: Sequence[float] | None
) -> tuple[int, Pieces]:
    """Say how many replicas there is work for, and give the pieces of every leaf for them."""
    if not (leaves.splits or leaves.copied):
        return len(devices), {}
    check_not_traced()  # It would record the extents as constants.
    if not devices:
        raise RuntimeError("Expected at least one device to scatter to")
    targets = [as_device_or_current(device) for device in devices]
    shares = share_out(leaves.splits, len(targets), weights)
    count = len(shares[0]) if shares else len(targets)
    pieces: dict[Leaf, Sequence[Any]] = {
        split: split_leaf(split, targets, lengths, even=weights is None)
        for split, lengths in zip(leaves.splits, shares, strict=True)
    }
    pieces.update(_copy_leaves(leaves.copied, targets[:count]))
    return count, pieces


def share_out(
    splits: Sequence[SplitLeaf], count: int, weights: Sequence[float] | None
) -> list[list[int]]:
    """Share out each leaf's rows; as many chunks of one as of any other.

    Beside a batch, a tensor with one row a device has a row for each device with work. The rows
    of the others are left out: transformers' Trainer passes such a tensor with every batch.
    """
    batch = [split for split in splits if not _is_per_device(split, count)]
    if not batch or len({split.extent for split in splits}) == 1:
        batch = list(splits)
    lengths = {
        extent: chunk_lengths(extent, count, weights)
        for extent in {split.extent for split in batch}
    }
    for split in batch:
        if len(lengths[split.extent]) != len(lengths[batch[0].extent]):
            raise ValueError(_mismatch(batch[0], split, count, lengths))
    one_each = [1] * len(lengths[batch[0].extent]) if batch else []
    dealt = set(map(id, batch))
    return [lengths[split.extent] if id(split) in dealt else one_each for split in splits]


def _is_per_device(split: SplitLeaf, count: int) -> bool:
    return split.extent == count and isinstance(split.value, Tensor)


def _mismatch(
    first: SplitLeaf, other: SplitLeaf, count: int, lengths: Mapping[int, list[int]]
) -> str:
    described = [
        f"{format_path(split.path)} has size {split.extent} along dim {split.dim} "
        f"({len(lengths[split.extent])} chunks)"
        for split in (first, other)
    ]
    return f"cannot split over {count} devices together: {described[0]}, {described[1]}"


def split_leaf(
    split: SplitLeaf,
    devices: Sequence[torch.device],
    lengths: Sequence[int],
    *,
    even: bool = False,
) -> Sequence[Any]:
    """Split one leaf: its chunks, each on its device.

    Args:
        split: The leaf.
        devices: The devices; there may be more than chunks.
        lengths: The extents of the chunks. Rows beyond their sum are left out.
        even: Whether the lengths are the default ones, of which `chunk` makes chunks too.
    """
    targets = devices[: len(lengths)]
    if not isinstance(split.value, Tensor):
        data, row_counts, parts = split_packed(split.value, lengths)
        chunks = _split_tensor(data, targets, row_counts, 0)
        return [part.with_data(chunk) for part, chunk in zip(parts, chunks, strict=True)]
    is_plain = type(split.value) in _PLAIN
    if not is_plain and is_wrapper(split.value):
        return _split_wrapper(split, targets, lengths, even=even)
    used = sum(lengths)
    rows = split.value if used == split.extent else split.value.narrow(split.dim, 0, used)
    # A subclass may refuse `split_with_sizes`, which is faster than `chunk`.
    return _split_tensor(rows, targets, None if even and not is_plain else lengths, split.dim)


def _split_tensor(
    tensor: Tensor, targets: Sequence[torch.device], sizes: Sequence[int] | None, dim: int
) -> Sequence[Tensor]:
    # From the CPU it is Scatter that copies, also without gradients: on streams of its own.
    if _needs_node([tensor]) or is_on_cpu(tensor):
        chunks: Sequence[Tensor] = Scatter.apply(targets, sizes, dim, tensor)  # type: ignore[no-untyped-call] # torch leaves it untyped
        return chunks
    pairs = zip(split_into_views(tensor, len(targets), sizes, dim), targets, strict=True)
    return [to_device(chunk, target) for chunk, target in pairs]


def _split_wrapper(
    split: SplitLeaf, targets: Sequence[torch.device], lengths: Sequence[int], *, even: bool
) -> Sequence[Tensor]:
    """Split a tensor by the operations of its own class, which are differentiable."""
    rest = split.extent - sum(lengths)
    # Where rows are left out, there is one row a chunk.
    count = split.extent if rest else len(lengths)
    chunks = split_into_views(split.value, count, None if even else [*lengths, rest], split.dim)
    pairs = zip(chunks, targets, strict=False)
    return [wrapper_to_device(chunk, target) for chunk, target in pairs]


def _copy_leaves(
    copied: Sequence[CopiedLeaf], devices: Sequence[torch.device]
) -> Iterator[tuple[Leaf, Sequence[Tensor]]]:
    """Copy leaves to every device, those that gradients flow through and the others apart."""
    for leaf in copied:
        if is_wrapper(leaf.tensor):
            yield leaf, [wrapper_to_device(leaf.tensor, device) for device in devices]
    plain = [leaf for leaf in copied if not is_wrapper(leaf.tensor)]
    with_grad = [leaf for leaf in plain if leaf.tensor.requires_grad]
    without = [leaf for leaf in plain if not leaf.tensor.requires_grad]
    for leaves, copy in ((with_grad, attached_copies), (without, detached_copies)):
        rows = copy([leaf.tensor for leaf in leaves], devices) if leaves else []
        yield from zip(leaves, zip(*rows, strict=True), strict=True)


def _join_leaf(leaf: GatheredLeaf, device: DeviceLike, dim: int) -> Any:
    """Join one leaf's tensors, or its packed sequences."""
    if not leaf.packed:
        return _join_tensors(leaf.tensors, device, dim)
    return cat_packed(leaf.packed, _join_tensors(leaf.tensors, device, 0))


def _join_tensors(tensors: Sequence[Tensor], device: DeviceLike, dim: int) -> Tensor:
    # What wants a node, a warning, a refusal or the CPU is left to the Function.
    if is_minus_one(device) or _needs_node(tensors) or any(map(_is_special, tensors)):
        whole: Tensor = Gather.apply(device, dim, *tensors)  # type: ignore[no-untyped-call] # torch leaves it untyped
        return whole
    dim = check_gather_inputs(tensors, dim)
    return cat_on_device(tensors, dim, as_device_or_current(device))


def _is_special(tensor: Tensor) -> bool:
    return tensor.dim() == 0 or is_on_cpu(tensor)


def _needs_node(tensors: Sequence[Tensor]) -> bool:
    """Tell whether gradients are to flow; without, an autograd node only costs time."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
