"""The parameters that a replica has in place of its module's own."""

import copy
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["FormerParameters"]


class FormerParameters(OrderedDict[str, Tensor]):
    """Copies of a module's parameters by name, which make their replica fit for ``deepcopy``.

    A replica's tensors are no leaves, and torch refuses to deepcopy those. Everything that a
    deepcopy meets a second time it takes from its memo, though. So this mapping, which stands in
    the replica's ``__dict__`` before anything else that holds these tensors, enters detached
    clones of them there. Shared tensors stay shared, and a module with a ``__deepcopy__`` of its
    own, as parametrized ones have, is served as well.

    Pickled, it is a plain ordered dictionary: a saved replica can be loaded without this package.

    Attributes:
        others: Tensors of the replica that are no leaves either: its buffers that require grad.
    """

    others: Sequence[Tensor] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> OrderedDict[str, Tensor]:
        for tensor in (*self.values(), *self.others):
            if id(tensor) not in memo and not tensor.is_leaf:
                memo[id(tensor)] = _independent(tensor)
        return OrderedDict((name, copy.deepcopy(tensor, memo)) for name, tensor in self.items())

    def __reduce__(self) -> tuple[Any, ...]:
        return OrderedDict, (), None, None, iter(self.items())


def _independent(tensor: Tensor) -> Tensor:
    clone = torch.clone(tensor.detach())
    return clone.requires_grad_(tensor.requires_grad)
