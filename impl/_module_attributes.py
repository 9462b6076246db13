"""Attributes of a wrapped module that are read through its wrapper."""

from typing import Any

from torch import nn

__all__ = ["ModuleAttributes"]

#: The wrapper's own attributes. Some are missing without devices.
_OWN = frozenset(("module", "device_ids", "output_device", "dim", "src_device_obj"))


class ModuleAttributes(nn.Module):
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
