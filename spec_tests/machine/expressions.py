"""Python expressions of drawn values, with the imports that the expressions need."""

import builtins
import dataclasses
import operator
import sys
from typing import Any

import torch

#: Classes whose ``repr`` is an expression.
_LITERALS = (bool, int, float, complex, str, bytes, range, type(None))
#: Classes whose ``repr`` is an expression that needs ``import torch``.
_OF_TORCH = (torch.dtype, torch.layout, torch.memory_format)


class NoExpressionError(Exception):
    """The error for a value, such as a lambda, that no expression makes."""


class Expressions:
    """Returns expressions, and collects the imports of all of them."""

    def __init__(self) -> None:
        self._modules: set[str] = set()
        self._names: dict[str, set[str]] = {}

    @property
    def imports(self) -> str:
        """The lines that import all modules and names."""
        lines = [f"import {module}" for module in sorted(self._modules)]
        for module, names in sorted(self._names.items()):
            lines.append(f"from {module} import {', '.join(sorted(names))}")
        return "\n".join(lines)

    def add_import(self, module: str, name: str | None = None) -> None:
        """Add ``import module`` or ``from module import name``."""
        if name is None:
            self._modules.add(module)
        else:
            self._names.setdefault(module, set()).add(name)

    def of(self, value: Any) -> str:
        """Return an expression that makes an equal value.

        Raises:
            NoExpressionError: There is no expression for a part of the value.
        """
        if isinstance(value, float) and abs(value) == float("inf"):
            return f'float("{value}")'
        if value is ... or type(value) in _LITERALS:
            return "..." if value is ... else repr(value)
        if type(value) in _OF_TORCH:
            self.add_import("torch")
            return repr(value)
        if isinstance(value, torch.device):
            self.add_import("torch", "device")
            return repr(value)
        if type(value) in (list, tuple, set):
            return self._of_collection(value)
        if type(value) is dict:
            pairs = (f"{self.of(key)}: {self.of(each)}" for key, each in value.items())
            return f"{{{', '.join(pairs)}}}"
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._of_dataclass(value)
        return self.of_named(value)

    def _of_collection(self, value: Any) -> str:
        members = ", ".join(map(self.of, value))
        if isinstance(value, tuple):
            return f"({members},)" if len(value) == 1 else f"({members})"
        return f"[{members}]" if isinstance(value, list) else f"set([{members}])"

    def _of_dataclass(self, value: Any) -> str:
        """Return a call of the class with those fields that differ from their defaults."""
        arguments = []
        is_positional = True
        for field in dataclasses.fields(value):
            found, default = getattr(value, field.name, None), field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            if not field.init or (type(default) is type(found) and default == found):
                is_positional = False
                continue
            is_positional = is_positional and not field.kw_only
            keyword = "" if is_positional else f"{field.name}="
            arguments.append(f"{keyword}{self.of(found)}")
        return f"{self.of_named(type(value))}({', '.join(arguments)})"

    def of_named(self, value: Any) -> str:
        """Return the name of a class or function, and import it.

        Raises:
            NoExpressionError: The value has no name in its module.
        """
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        try:
            found = operator.attrgetter(name or "")(sys.modules[module or ""])
        except (AttributeError, KeyError):
            found = None
        if found is not value or module is None or name is None:
            raise NoExpressionError(f"no expression makes {value!r}")
        if module != builtins.__name__:
            self.add_import(module, name.partition(".")[0])
        return str(name)
