"""Scatter of nested arguments over devices, and gather of nested outputs.

Three modules split and concatenate. ``comm`` handles one tensor by operators of PyTorch.
``functions`` handles one tensor by an autograd node. This module handles nested values, and uses a
node only for tensors that need gradients.

Letters: ``N`` is the size of a tensor along ``dim``, ``k`` the number of devices.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from ._arguments import argument, as_bool, as_int, as_list
from ._attributes import is_same
from ._bucket_copies import attached_copies, detached_copies
from ._comm_checks import check_gather_inputs
from ._containers import Leaf, Pieces

# Undocumented names: nncore and torch.distributed import the first one, and copies of scatter the
# older second one.
from ._containers import is_named_tuple as _is_namedtuple  # noqa: F401
from ._containers import is_named_tuple as is_namedtuple  # noqa: F401
from ._copies import (
    check_gradient_layout,
    has_own_operators,
    move_by_own_operators,
    needs_grad,
    tensor_dict_to_device,
    to_device,
)
from ._devices import CPU, DeviceLike, as_device_or_current, as_target, is_cpu, is_on_cpu
from ._inputs import SPARSE_LAYOUTS, CopiedLeaf, InputLeaves, SplitLeaf
from ._outputs import GatheredLeaf, OutputLeaves
from ._packed_sequences import cat_packed
from ._scatter_leaves import check_chunk_sizes, scatter_leaves, split_lengths, split_simple
from ._split_and_cat import promote_dtypes
from ._torch_private import exclude_from_compilation
from ._tracing import check_not_traced
from .functions import Gather, gather_tensors, unsqueeze_scalars
from .functions import Scatter as Scatter  # Other packages import it from this module.

__all__ = ["gather", "scatter", "scatter_kwargs"]

_dtype_of = attrgetter("dtype")


@exclude_from_compilation
def scatter(
    inputs: Any,
    target_gpus: Iterable[DeviceLike],
    dim: int = 0,
    *,
    chunk_sizes: Sequence[float] | None = None,
) -> Sequence[Any]:
    """Split each tensor in a nested value into one chunk per device.

    - Tuples, lists, deques, mappings, named tuples and dataclasses are rebuilt for each device
      around the chunks, and so are objects of classes that are registered with
      ``torch.utils._pytree``, also if they are empty. Such an object is passed by reference to a
      single device that has all its tensors. A mapping that is neither a dict nor a UserDict is
      rebuilt by its class, called with a dict.
    - A rebuilt container has the attributes that its class makes from the new items, and all
      other attributes of the original. To find them, the class is called with the original items.
      Of the other attributes, a tensor with as many rows as the batch is split, and any other
      tensor is copied to each device. Values of ``functools.cached_property`` are dropped. If no
      call of the class with a dict, pairs or keywords returns the items, the object is copied.
    - Passed by reference: empty containers, other objects, and dataclasses, deques or non-dict
      mappings without tensors.
    - A packed sequence is split by sequence, and ``dim`` does not apply to it.
    - A tensor whose class defines ``__torch_dispatch__``, such as a nested or masked tensor, is
      split by its own ``chunk``, or by ``split_with_sizes`` if ``chunk_sizes`` is given.
    - A TensorDict is split by its own operators along ``dim`` of its ``batch_size``; if that is
      empty, its tensors are split.
    - A 0-dim tensor, and a value marked ``Whole``, is copied to each device.
    - If a tensor has ``k`` rows and the other tensors have another number of rows, it is split
      into one row per device. The rows for devices without a chunk are dropped.

    Args:
        inputs: Any nested value. ``SplitAlong`` marks a value in it that is split along another
            dimension.
        target_gpus: ``k`` devices in output order. The same device may appear twice.
        dim: The dimension to split. Negative values count from the last one.
        chunk_sizes: ``k`` sizes that sum to ``N``, or ``k`` weights: ``N`` is then divided in
            proportion to them. By default each chunk but the last has ``ceil(N / k)`` rows.

    Returns:
        At most ``k`` values, one per chunk: in a tuple if ``inputs`` is a tensor, else in a list.
        If no tensor is split, there are ``k`` values. A chunk on the device of its tensor is a
        view. A chunk on another device is a copy that keeps dense strides. A tensor that each
        device receives whole is the tensor itself or a view on its own device, and a row-major
        copy on other devices. Gradients flow back to the tensors. The gradients of all copies of
        a tensor are summed. A chunk of the same subclass as its tensor has the attributes of the
        tensor, as the same objects; those of plain tensors are lost.

    Raises:
        ValueError: Two tensors have different numbers of chunks; ``chunk_sizes`` does not have
            ``k`` entries, has a negative one, or only zeros; a device has no index.
        IndexError: A tensor has no dimension ``dim``.
        RuntimeError: There is a tensor but no device; a nested tensor is ragged along ``dim``;
            torch.jit.trace records the call.
        NotImplementedError: A sparse tensor, of any layout, requires grad; or it is not marked
            ``Whole``, and there are several devices.
        TypeError: ``dim`` is not an int; an object names no device; a mapping with tensors, or an
            object of a registered class, cannot be rebuilt; a cache of transformers is not
            registered.
    """
    targets, dim = _check_arguments(target_gpus, dim, chunk_sizes)
    (column,) = _scatter_together([(inputs, "inputs")], targets, dim, chunk_sizes)
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
    """Split positional and keyword arguments together, by the rules of :func:`scatter`.

    ``inputs`` are the positional arguments, and ``kwargs`` the keyword arguments; None stands for
    none. The other arguments, and the errors, are those of :func:`scatter`.

    Returns:
        A tuple with the positional arguments of each replica, and a tuple of the same length with
        the keyword arguments of each replica. The length is the number of chunks, ``k`` if no
        tensor is split, or 0 if there are no arguments.

    Raises:
        TypeError: ``inputs`` has no length; see :func:`scatter`.
    """
    targets, dim = _check_arguments(target_gpus, dim, chunk_sizes)
    if type(inputs) is tuple and (kwargs is None or type(kwargs) is dict):
        kwargs = kwargs or {}
        parts = split_simple((*inputs, *kwargs.values()), targets, dim, chunk_sizes)
        if parts:
            rows, count = [*zip(*parts, strict=True)], len(inputs)
            return (
                tuple([row[:count] for row in rows]),
                tuple([dict(zip(kwargs, row[count:], strict=True)) for row in rows]),
            )
    has_inputs, has_kwargs = as_bool("inputs", inputs), as_bool("kwargs", kwargs)
    if has_inputs and not hasattr(type(inputs), "__len__"):
        raise TypeError(f"inputs must be a sequence of arguments, not {type(inputs).__name__}")
    present = [(inputs, "args")] * has_inputs + [(kwargs, "kwargs")] * has_kwargs
    columns = iter(_scatter_together(present, targets, dim, chunk_sizes))
    all_args = next(columns) if has_inputs else []
    all_kwargs = next(columns) if has_kwargs else []
    all_args += [() for _ in all_kwargs[len(all_args) :]]
    all_kwargs += [{} for _ in all_args[len(all_kwargs) :]]
    return tuple(all_args), tuple(all_kwargs)


@exclude_from_compilation
def gather(
    outputs: Sequence[Any],
    target_device: DeviceLike,
    dim: int = 0,
    *,
    scalar_warning: bool = True,
) -> Any:
    """Concatenate the nested outputs of replicas, tensor by tensor, on one device.

    - Containers, and objects of classes that are registered with ``torch.utils._pytree``, are
      rebuilt with the structure of the first output. The class of a tuple or another iterable is
      called with one iterable, and a list is copied. A tuple whose class returns other members
      is made without a call of its class.
    - A rebuilt tuple, list, deque, mapping or dataclass has the attributes that its class makes
      from the joined items, and all other attributes of the first output; if an item becomes a
      list or a vector of scalars, all attributes of the first output. Tensors in these are
      joined, too, unless they require no gradient, have no rows and are equal in all outputs.
    - Sets of several tensors become a list, because the tensors have no order.
    - A list, or tuple, with one tensor for each row is appended to those of the other replicas:
      its length is the number of rows that the first other output of its replica has, and none of
      its tensors has this size along ``dim``. So is a ``pooler_output`` of transformers that is a
      list. If ``dim`` is 0, other outputs and caches of transformers are joined along the
      dimension that their classes have. Along another dimension caches are listed.
    - Packed sequences become one packed sequence that has all sequences in order, jagged
      nested tensors one nested tensor that has all rows, and TensorDicts with a ``batch_size`` are
      concatenated by ``torch.cat``.
    - Other values become a list with one entry per replica. So do iterables that raise an error
      when they are iterated over or rebuilt, and registered objects that differ in more than
      their parts.

    Args:
        outputs: The outputs of the replicas, at least one.
        target_device: The device of the result; the CPU is allowed.
        dim: The dimension to concatenate along. If it is 0, scalars become a vector.
        scalar_warning: Whether a vector of scalars is reported by a warning.

    Returns:
        One nested value with new tensors. A tensor is on ``target_device``, or on the CPU if the
        replicas' tensors are on the CPU. It has the dtype to which PyTorch promotes those of the
        replicas; tensors without elements do not count beside others. Gradients flow back to the
        replicas' tensors. Tensors of a subclass become plain ones, but for those whose class
        defines ``__torch_dispatch__``, such as masked ones: they are concatenated by their own
        ``cat``.

    Raises:
        IndexError: ``outputs`` is empty, or a tensor has no dimension ``dim``.
        ValueError: At the same position in the outputs, some replicas returned None, a tensor or a
            packed sequence, and others did not; or dictionaries or sequences differ in length, and
            are no lists of one tensor for each row.
        KeyError: A dictionary lacks a key of the first replica's dictionary.
        RuntimeError: Tensors differ in another dimension than ``dim``, or in dtypes that PyTorch
            does not promote; or jagged tensors are gathered along another dimension than the
            first.
        TypeError: ``dim`` is not an int, or ``target_device`` is no device.

    Warns:
        UserWarning: Scalars became a vector; sets of several tensors, or iterables or registered
            objects that cannot be rebuilt, became lists.
    """
    return gather_outputs(outputs, target_device, dim, scalar_warning=scalar_warning)


@exclude_from_compilation
def gather_outputs(
    outputs: Sequence[Any],
    target_device: DeviceLike,
    dim: int,
    *,
    scalar_warning: bool = True,
    module: nn.Module | None = None,
) -> Any:
    """Concatenate outputs like :func:`gather`. ``module`` is the module that has returned them."""
    scalar_warning = as_bool("scalar_warning", scalar_warning)
    if type(outputs) is list and {*map(type, outputs)} == {Tensor}:  # The usual case.
        return _cat_replicas(GatheredLeaf(outputs), target_device, dim, scalar_warning)
    leaves = OutputLeaves(dim, module)
    with argument("outputs"):
        root = leaves.flatten(outputs, "output")
        if leaves.lists:
            leaves.append_rows(as_int("dim", dim))
    kept = _find_constants(leaves, dim) if leaves.attributes else []
    pieces: dict[Leaf, list[Any]] = {
        leaf: [_cat_replicas(leaf, target_device, dim, scalar_warning)]
        for leaf in [*leaves.gathered, *leaves.attributes]
        if leaf not in kept
    }
    pieces.update((leaf, [_move_to_target(leaf.tensors[0], target_device)]) for leaf in kept)
    return root.unflatten(1, pieces)[0]


def _check_arguments(
    devices: Iterable[DeviceLike], dim: int, chunk_sizes: Sequence[float] | None
) -> tuple[list[DeviceLike], int]:
    """Return a list of ``devices``, and ``dim`` as an int."""
    targets = as_list("target_gpus", devices)
    dim = as_int("dim", dim)
    if chunk_sizes is not None:
        check_chunk_sizes(chunk_sizes, len(targets))
    return targets, dim


def _scatter_together(
    roots: Sequence[tuple[Any, str]],
    targets: Sequence[DeviceLike],
    dim: int,
    chunk_sizes: Sequence[float] | None,
) -> list[list[Any]]:
    """Return the parts of each of ``roots``: pairs of a value and its name in error messages."""
    # Flatten all values before any tensor is copied: the number of chunks depends on all tensors,
    # and sizes that do not match must raise an error before any device has work.
    only = targets[0] if len(targets) == 1 and isinstance(targets[0], torch.device) else None
    leaves = InputLeaves(only, is_one_chunk=len(targets) == 1)
    nodes = []
    for value, name in roots:
        with argument(f"{name} or dim"):
            nodes.append(leaves.flatten(value, dim, name))
    leaves.sort_attributes()
    count, pieces = _split_and_copy(leaves, targets, chunk_sizes)
    return [list(node.unflatten(count, pieces)) for node in nodes]


def _split_and_copy(
    leaves: InputLeaves, devices: Sequence[DeviceLike], chunk_sizes: Sequence[float] | None
) -> tuple[int, Pieces]:
    """Return the number of replicas, and for each leaf a chunk or copy for each replica."""
    if not (leaves.splits or leaves.copied):
        return len(devices), {}
    check_not_traced()  # A trace would record the chunk sizes as constants.
    if not devices:
        raise RuntimeError("Expected at least one device to scatter to")
    targets = [as_device_or_current(device) for device in devices]
    lengths = split_lengths(leaves.splits, len(targets), chunk_sizes)
    count = len(lengths[0]) if lengths else len(targets)
    pieces = scatter_leaves(leaves.splits, lengths, targets[:count], even=chunk_sizes is None)
    pieces.update(_copy_leaves(leaves.copied, targets[:count]))
    return count, pieces


def _copy_leaves(
    copied: Sequence[CopiedLeaf | SplitLeaf], devices: Sequence[torch.device]
) -> Iterator[tuple[Leaf, Sequence[Tensor]]]:
    """Yield each leaf with its copies. Leaves that require grad are copied separately."""
    for leaf in copied:
        if has_own_operators(type(leaf.tensor)):
            yield leaf, [move_by_own_operators(leaf.tensor, device) for device in devices]
    plain = [leaf for leaf in copied if not has_own_operators(type(leaf.tensor))]
    with_grad = [leaf for leaf in plain if leaf.tensor.requires_grad]
    for leaf in with_grad:
        if leaf.tensor.layout is not torch.strided:
            check_gradient_layout(leaf.tensor, f"a tensor of shape {tuple(leaf.tensor.shape)}")
    without = [leaf for leaf in plain if not leaf.tensor.requires_grad]
    for leaves, copy in ((with_grad, attached_copies), (without, detached_copies)):
        rows = copy([leaf.tensor for leaf in leaves], devices) if leaves else []
        yield from zip(leaves, zip(*rows, strict=True), strict=True)


def _find_constants(leaves: OutputLeaves, dim: int) -> list[GatheredLeaf]:
    """Return the leaves in attributes that have equal values in all replicas, and no rows."""
    rows = {leaf.sizes(dim) for leaf in leaves.gathered or leaves.attributes[:1]}
    return [leaf for leaf in leaves.attributes if _is_constant(leaf, dim, rows)]


def _is_constant(leaf: GatheredLeaf, dim: int, rows: Collection[Sequence[int]]) -> bool:
    first = leaf.tensors[0]
    if not isinstance(first, Tensor) or leaf.packed_sequences or needs_grad(leaf.tensors):
        return False
    if first.dim() and leaf.sizes(dim) in rows:
        return False
    return all(is_same(first, tensor.to(first.device)) for tensor in leaf.tensors[1:])


def _move_to_target(tensor: Tensor, device: DeviceLike) -> Tensor:
    return tensor if is_on_cpu(tensor) else to_device(tensor, as_target(device, warns=False))


def _cat_replicas(leaf: GatheredLeaf, device: DeviceLike, dim: int, scalar_warning: bool) -> Any:
    """Concatenate the tensors of all replicas. A note names their shapes if they do not fit."""
    first = leaf.tensors[0]
    is_nested = isinstance(first, Tensor) and first.is_nested and first.layout is torch.strided
    if is_nested or (isinstance(first, Tensor) and first.layout in SPARSE_LAYOUTS):
        raise NotImplementedError(
            f"{'nested' if is_nested else 'sparse'} outputs with the layout {first.layout} cannot "
            "be concatenated: return them dense or jagged, or use map()"
        )
    try:
        return _cat_leaf(leaf, device, dim, scalar_warning)
    except (IndexError, RuntimeError) as error:
        if isinstance(error, IndexError) or len({each.shape for each in leaf.tensors}) > 1:
            shapes = [f"replica {i}: {list(each.shape)}" for i, each in enumerate(leaf.tensors)]
            error.add_note(f"Shapes of the outputs: {', '.join(shapes)}")
            error.add_note(
                f"Outputs are concatenated along dim {dim}. If their rows are along another "
                "dimension, let the module transpose them; if they have none, compute whole "
                "batches with `map`."
            )
        raise


def _cat_leaf(leaf: GatheredLeaf, device: DeviceLike, dim: int, scalar_warning: bool) -> Any:
    if leaf.packed_sequences:
        return cat_packed(leaf.packed_sequences, _cat_tensors(leaf.tensors, device, 0))
    tensors = leaf.tensors
    if not isinstance(tensors[0], Tensor):
        return _cat_tensor_dicts(tensors, device, dim)
    if tensors[0].layout is torch.jagged:
        return _cat_jagged(tensors, device, dim)
    are_scalars = not any(map(Tensor.dim, tensors)) and as_int("dim", dim) == 0
    if are_scalars and not scalar_warning:
        tensors = [tensor.view(1) for tensor in tensors]
    if are_scalars and scalar_warning and has_own_operators(type(tensors[0])):
        tensors = unsqueeze_scalars(tensors)
    return _cat_tensors(tensors, device, dim)


def _cat_tensor_dicts(values: Sequence[Any], device: DeviceLike, dim: int) -> Any:
    tensors = [tensor for value in values for tensor in value.values(True, True)]
    target = CPU if all(map(is_on_cpu, tensors)) else as_target(device)
    return torch.cat([tensor_dict_to_device(value, target) for value in values], dim)


def _cat_jagged(tensors: Sequence[Tensor], device: DeviceLike, dim: int) -> Tensor:
    """Concatenate the rows of jagged nested tensors, which ``torch.cat`` refuses."""
    if as_int("dim", dim) not in (0, -tensors[0].dim()):
        raise RuntimeError(f"jagged tensors can be gathered along dim 0 only, not along dim {dim}")
    target = CPU if all(map(is_on_cpu, tensors)) else as_target(device)
    rows = [row for each in tensors for row in move_by_own_operators(each, target).unbind()]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def _cat_tensors(tensors: Sequence[Tensor], device: DeviceLike, dim: int) -> Tensor:
    if has_own_operators(type(tensors[0])) and tensors[0].dim():
        target = CPU if all(map(is_on_cpu, tensors)) else as_target(device)
        # `torch.cat` accepts a tensor of another shape if it has one dimension and no elements.
        dim = check_gather_inputs(tensors, as_int("dim", dim), any_device=is_cpu(target))
        return torch.cat([move_by_own_operators(each, target) for each in tensors], dim)
    if len({*map(_dtype_of, tensors)}) > 1:
        # `comm.gather` converts to the dtype of the first, which loses values and gradients.
        tensors = promote_dtypes(tensors)
    if not needs_grad(tensors):
        return gather_tensors(tensors, device, dim)  # A node would take longer than the copies.
    whole: Tensor = Gather.apply(device, dim, *tensors)  # type: ignore[no-untyped-call] # in torch
    return whole
