"""Chunks of one tensor for several replicas on its device, each with its own version counter."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from ._containers import Leaf
from ._copies import has_own_operators, with_class_and_attributes, without_repeats
from ._inputs import InputLeaves
from ._settings import without_grad
from ._torch_private import base_of_view, use_plain_operators, version_counters


class UnsharedChunks:
    """Copies of the chunks of one forward that would share a version counter.

    Chunks on the device of their tensor are views of it and share its version counter. If one
    replica changes its view in place, backward raises an error for views that other replicas have
    saved. Each replica therefore gets a copy, and :meth:`write_back` changes the tensor, which
    increases its version. A view with a version counter of its own would need no copy. But it
    could change the tensor without its version, and backward of operations outside of the replicas
    that have saved the tensor would compute wrong gradients.
    """

    def __init__(self) -> None:
        #: For each copy: the view, the copy, a tensor that shares memory and version counter with
        #: the copy, and the version.
        self._copied: list[tuple[Tensor, Tensor, Tensor, list[object]]] = []

    def separate(self, all_args: Sequence[Any], all_kwargs: Sequence[Any]) -> Iterable[Any]:
        """Return the arguments with copies in place of views of one tensor.

        A view that requires grad is not copied, because autograd refuses changes of it. Nor is a
        tensor of which one replica has two views: a change of one is a change of the other.
        """
        arguments = [*zip(all_args, all_kwargs, strict=True)]
        replicas = [InputLeaves() for _ in arguments]
        roots = [
            leaves.flatten(value, None, "argument")
            for leaves, value in zip(replicas, arguments, strict=True)
        ]
        tensors = [[leaf.tensor for leaf in leaves.copied] for leaves in replicas]
        views = _find_views(tensors)
        pieces: dict[Leaf, list[Tensor]] = {
            leaf: [self._copy(leaf.tensor) if id(leaf.tensor) in views else leaf.tensor]
            for leaves in replicas
            for leaf in leaves.copied
        }
        if not views:
            return all_args, all_kwargs
        return zip(*(root.unflatten(1, pieces)[0] for root in roots), strict=True)

    def _copy(self, view: Tensor) -> Tensor:
        # A subclass may refuse `clone`, and a clone has none of the view's attributes.
        with use_plain_operators():
            source = without_repeats(view)
            clone = source.clone()
            clone = clone if source is view else clone.expand_as(view)
            copy = with_class_and_attributes(clone, view)
        # The replica may change the shape of `copy`, but not that of `alias`.
        alias = without_repeats(copy.detach())
        self._copied.append((source, copy, alias, version_counters([alias])))
        return copy

    def write_back(self) -> None:
        """Change each tensor of which a replica has changed a chunk, and forget the chunks."""
        for view, copy, alias, version in self._copied:
            if version_counters([alias]) != version:
                if copy.requires_grad and copy.data_ptr() == alias.data_ptr():
                    # The history of `copy`, in the shape of `alias`.
                    shape, strides = alias.shape, alias.stride()
                    _write(view, copy.as_strided(shape, strides, alias.storage_offset()))
                else:
                    _write(view, alias)
        self._copied.clear()


def _write(view: Tensor, values: Tensor) -> None:
    base = base_of_view(view)
    if values.requires_grad and base is not None:
        # The view was created without grad mode, so autograd refuses a change with history.
        # `as_strided` counts elements of the base, and ignores the bits of the view.
        view = view.detach()
        if view.is_conj():
            view, values = view.conj(), values.conj_physical()
        if view.is_neg():
            values = values.neg()
        if base.is_complex() and not view.is_complex():
            base = torch.view_as_real(base)
        elif view.is_complex() and not base.is_complex():
            view, values = torch.view_as_real(view), torch.view_as_real(values)
        base.as_strided(view.shape, view.stride(), view.storage_offset()).copy_(values)
    else:
        without_grad(view.copy_)(values)


def _find_views(tensors: Sequence[Sequence[Tensor]]) -> set[int]:
    """Return the ids of the tensors to copy; ``tensors`` has a list for each replica."""
    users: dict[int, list[tuple[int, Tensor]]] = defaultdict(list)
    empty: list[Tensor] = []  # Views without elements have no address, but share the version.
    for replica, members in enumerate(tensors):
        for tensor in members:
            # A tensor of a torch.func transform has no storage.
            with suppress(NotImplementedError, RuntimeError):
                if tensor.numel():
                    users[tensor.untyped_storage().data_ptr()].append((replica, tensor))
                elif base_of_view(tensor) is not None:
                    empty.append(tensor)
    shared = (
        tensor
        for uses in users.values()
        if len(uses) == len({replica for replica, _ in uses})
        # A tensor that all replicas share is not split.
        and len({tensor.data_ptr() for _, tensor in uses}) == len(uses)
        for _, tensor in uses
        # The chunk of a single replica is a view, too, and autograd refuses some changes of it.
        if len(uses) > 1 or base_of_view(tensor) is not None
    )
    return {
        id(tensor)
        for tensor in (*shared, *empty)
        if not (tensor.requires_grad or tensor.is_inference() or has_own_operators(type(tensor)))
    }
