"""Lists and dictionaries of parameters in replicas.

``nn.ParameterList`` and ``nn.ParameterDict`` make a new parameter of each tensor that is no
``nn.Parameter``, as a copy of a parameter is. A slice of a list in a replica would have parameters
without a history, and the parameters of the module would get no gradient.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ._bucket_copies import is_attached_copy


class _ListOfCopies(nn.ParameterList):
    """A list that keeps the history of copies. Slices are lists of this class."""

    def __setitem__(self, index: int, value: Any) -> None:
        super().__setitem__(index, value)
        _keep_history(self, str(range(len(self))[index]), value)

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return nn.ParameterList, (), self.__dict__


class _DictOfCopies(nn.ParameterDict):
    """A dictionary that keeps the history of copies. Copies and unions are of this class."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        _keep_history(self, key, value)

    def copy(self) -> nn.ParameterDict:
        return _DictOfCopies(self)

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return nn.ParameterDict, (), self.__dict__


def _keep_history(container: nn.Module, name: str, value: Any) -> None:
    """Register ``value`` itself, if it is a copy of a parameter."""
    # `nn.Module.register_parameter` refuses tensors with a history.
    if isinstance(value, Tensor) and not torch.compiler.is_compiling() and is_attached_copy(value):
        container._parameters[name] = value  # type: ignore[assignment] # no nn.Parameter


#: For each class: that of its replicas with parameters. The names of the classes are the same.
CLASSES_OF_REPLICAS: dict[type[nn.Module], type[nn.Module]] = {
    nn.ParameterList: _ListOfCopies,
    nn.ParameterDict: _DictOfCopies,
}
for _class, _replica_class in CLASSES_OF_REPLICAS.items():
    _replica_class.__name__, _replica_class.__qualname__ = _class.__name__, _class.__qualname__
