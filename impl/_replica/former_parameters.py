"""The parameter copies of a replica."""

import copy
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class FormerParameters(OrderedDict[str, Tensor]):
    """Copies of a module's parameters by name, which make their replica deepcopyable.

    A replica's tensors are not leaves, and torch refuses to deepcopy those. This mapping comes
    before all other references to these tensors in the replica's ``__dict__``, and enters
    detached clones of them into the memo of a deepcopy. Shared tensors stay shared. Modules with
    their own ``__deepcopy__``, such as parametrized ones, can be deepcopied, too.

    It pickles as a plain ordered dictionary: a saved replica can be loaded without this package.

    Attributes:
        non_leaf_buffers: The replica's buffers that require grad, which are not leaves either.
    """

    non_leaf_buffers: Sequence[Tensor] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> OrderedDict[str, Tensor]:
        for tensor in (*self.values(), *self.non_leaf_buffers):
            if id(tensor) not in memo and not tensor.is_leaf:
                memo[id(tensor)] = _detached_clone(tensor)
        return OrderedDict((name, copy.deepcopy(tensor, memo)) for name, tensor in self.items())

    def __reduce__(self) -> tuple[Any, ...]:
        return OrderedDict, (), None, None, iter(self.items())


def _detached_clone(tensor: Tensor) -> Tensor:
    clone = torch.clone(tensor.detach())
    return clone.requires_grad_(tensor.requires_grad)
