"""The mapping ``_former_parameters`` of a replica, which makes the replica deepcopyable."""

import copy
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class FormerParameters(OrderedDict[str, Tensor]):
    """The copies of a module's parameters in a replica, by name.

    The tensors of a replica are not leaves of the autograd graph, and ``deepcopy`` fails for such
    tensors. This mapping makes the replica deepcopyable. It is the first entry of the replica's
    ``__dict__``, so ``deepcopy`` copies it first. Its ``__deepcopy__`` adds detached clones of
    the tensors to the memo of the deepcopy. Shared tensors stay shared. Modules with their own
    ``__deepcopy__``, for example parametrized ones, can be deepcopied, too.

    The mapping is pickled as a plain ordered dictionary, so that a saved replica can be loaded
    without this package.
    """

    #: The replica's buffers that require grad, which are not leaves either.
    non_leaf_buffers: Sequence[Tensor] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> OrderedDict[str, Tensor]:
        for tensor in (*self.values(), *self.non_leaf_buffers):
            if id(tensor) not in memo and not tensor.is_leaf:
                clone = torch.clone(tensor.detach())
                memo[id(tensor)] = clone.requires_grad_(tensor.requires_grad)
        return OrderedDict((name, copy.deepcopy(tensor, memo)) for name, tensor in self.items())

    def __reduce__(self) -> tuple[Any, ...]:
        return OrderedDict, (), None, None, iter(self.items())
