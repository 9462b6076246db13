"""The module in a wrapper: its attributes, its methods, and its call on one device."""

from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from ._containers import Leaf
from ._copies import to_device
from ._devices import as_target
from ._inputs import InputLeaves
from ._placement import DeviceId
from ._torch_private import compile_only_inlined, exclude_from_compilation
from ._tracing import is_compiling_or_tracing, is_movable, move_tensors
from .scatter_gather import scatter_kwargs

#: The wrapper's own attributes. Some are missing without devices.
_OWN = frozenset(("module", "device_ids", "output_device", "dim", "src_device_obj"))


class AttributeForwardingModule(nn.Module):
    """A wrapper of ``module`` that may return the attributes of ``module`` as its own.

    Attributes:
        module_attributes: Whether public attributes that the wrapper lacks are read from
            ``module``.
    """

    #: The default is a class attribute, so that a wrapper pickled without it can be loaded.
    module_attributes: bool = False

    def __getattr__(self, name: str) -> Any:
        """Return a submodule, or an attribute of ``module`` if ``module_attributes`` is set."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            module = vars(self).get("_modules", {}).get("module")
            # A name of the class is a property of the wrapper that has raised the error.
            is_own = name.startswith("_") or name in _OWN or hasattr(type(self), name)
            if not self.module_attributes or is_own:
                raise
        return getattr(module, name)


@compile_only_inlined
def method_of(module: Any, method: str | None) -> Any:
    """Return a method of ``module``; the module itself for None."""
    return module if method is None else getattr(module, method)


def check_method(module: nn.Module, name: str) -> None:
    """Raise TypeError if ``name`` is not that of a method of ``module``, or of a submodule."""
    if not isinstance(name, str):
        raise TypeError(f"method must be the name of a method, not {type(name).__name__}")
    method = getattr(module, name, None)
    if not (isinstance(method, MethodType) and method.__self__ in {*module.modules()}):
        raise TypeError(f"{name!r} is not a method of {type(module).__name__}")


# The call of a module that computes a whole batch on one device.


@compile_only_inlined
def call_on_one(
    module: Callable[..., Any],
    inputs: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    source: torch.device,
    target: DeviceId,
    dim: int,
) -> Any:
    """Return the outputs of ``module``, which is on ``source``, with tensors moved to ``target``.

    The arguments are moved to ``source``. Their tensors must have the dimension ``dim``.
    """
    if is_compiling_or_tracing() and is_movable((inputs, kwargs), dim):
        args, kwargs = move_tensors((inputs, kwargs), source)
    else:
        args, kwargs = first_replica_arguments(*scatter_kwargs(inputs, kwargs, [source], dim))
    return move_output(module(*args, **kwargs), source, target)


@compile_only_inlined
def first_replica_arguments(
    inputs: Sequence[Any], kwargs: Sequence[Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments of the first replica. A call without arguments has none."""
    return (inputs[0], kwargs[0]) if inputs or kwargs else ((), {})


@compile_only_inlined
def move_output(output: Any, source: torch.device, target: DeviceId) -> Any:
    """Return ``output`` with its tensors moved from ``source`` to ``target``."""
    # If no tensor has to move, the caller gets the module's own output object.
    is_there = target == source or target == source.index
    return output if is_there else _move_tensors(output, source, target)


@exclude_from_compilation
def _move_tensors(output: Any, source: torch.device, target: DeviceId) -> Any:
    device = as_target(target, warns=False)
    if device == source:
        return output
    leaves = InputLeaves()
    root = leaves.flatten(output, None, "output")
    # Move only the tensors on `source`. Tensors on the CPU stay there, as in `gather`.
    pieces: dict[Leaf, list[Tensor]] = {
        leaf: [to_device(leaf.tensor, device) if leaf.tensor.device == source else leaf.tensor]
        for leaf in leaves.copied
    }
    return root.unflatten(1, pieces)[0]
