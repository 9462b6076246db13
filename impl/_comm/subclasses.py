"""Copies of tensors whose class or whose attributes are not those of a new tensor.

A class with its own ``__torch_dispatch__`` copies its tensors itself, with their attributes. All
other tensors are copied as plain tensors, and the copies get class and attributes afterwards.
"""

from typing import Any

import torch
from torch import Tensor, nn

from .._compat import use_plain_operators
from .split_cat import is_wrapper

#: The classes of tensors that support all operators; a subclass may not.
PLAIN_CLASSES = frozenset((Tensor, nn.Parameter))


class _Subclass(Tensor):
    """A subclass of Tensor without operators of its own."""


#: The attributes that mark a tensor of a subclass as a Parameter.
_PARAMETER_MARKS = frozenset(
    nn.Parameter(torch.empty(0, device="cpu").as_subclass(_Subclass)).__dict__
)


def with_class_and_attributes(copy: Tensor, source: Tensor) -> Tensor:
    """Return ``copy`` with the class of ``source``, and with the attributes that it lacks.

    The attributes are the same objects as those of ``source``. The copy of a Parameter is a plain
    tensor, because it is not a leaf of the autograd graph.
    """
    if copy is source or is_wrapper(source):
        return copy
    kind = type(source)
    if not issubclass(kind, nn.Parameter) and type(copy) is not kind:
        copy = copy.as_subclass(kind)
    copy_attributes(source, copy)
    return copy


def detached(tensor: Tensor, source: Tensor) -> Tensor:
    """Return a new tensor with the memory of ``tensor``, and the class of a copy of ``source``.

    A replica may set attributes of the new tensor or call ``requires_grad_``.
    """
    if type(tensor) in PLAIN_CLASSES and not source.__dict__:
        return tensor.detach()
    with use_plain_operators():
        detached = tensor.detach()
    return with_class_and_attributes(detached, source)


def copy_attributes(source: Tensor, copy: Tensor) -> None:
    """Copy the attributes of ``source`` to ``copy``, except those that ``copy`` already has."""
    attributes: dict[str, Any] = copy.__dict__
    for name, value in source.__dict__.items():
        if name not in _PARAMETER_MARKS:
            attributes.setdefault(name, value)
