"""The module in a wrapper: its attributes and its methods."""

from types import MethodType
from typing import Any

from torch import nn

from ._torch_private import compile_only_inlined

#: The wrapper's own attributes. Some are missing without devices.
_OWN = frozenset(("module", "device_ids", "output_device", "dim", "src_device_obj"))


class AttributeForwardingModule(nn.Module):
    """A wrapper that may return the attributes of ``module`` as its own."""

    #: The default is a class attribute, so that a wrapper pickled without it can be loaded.
    module_attributes: bool = False

    def __getattr__(self, name: str) -> Any:
        """Return a submodule, or an attribute of ``module`` if ``module_attributes`` is set."""
        members = self.__dict__.get("_modules", {})
        if name in members:  # A wrapper reads its module several times in a call.
            return members[name]
        try:
            return super().__getattr__(name)
        except AttributeError as error:
            module = members.get("module")
            # A name of the class is a property of the wrapper that has raised the error.
            is_own = name.startswith("_") or name in _OWN or hasattr(type(self), name)
            if is_own:
                raise
            if not self.module_attributes:
                error.add_note(
                    f"An attribute of the wrapped module is `wrapper.module.{name}`, or "
                    f"`wrapper.{name}` with module_attributes=True. A method runs on all devices "
                    f"with `wrapper.call({name!r}, ...)`."
                )
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
