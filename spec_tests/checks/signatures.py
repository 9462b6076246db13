"""Compares the signatures of functions, classes and methods."""

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from operator import attrgetter
from types import ModuleType
from typing import Any

from spec_tests.machine.target import Part

#: The names that are compared in place of those of variadic parameters, which no caller uses.
_VARIADIC: Mapping[Any, str] = {Parameter.VAR_POSITIONAL: "args", Parameter.VAR_KEYWORD: "kwargs"}


def public_functions(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the functions, classes and methods that a module defines, by name.

    The names of methods are like ``DataParallel.scatter``. Names that begin with an underscore are
    left out; the signature of a class is that of its constructor.
    """
    found = {}
    for name, value in _public_members(module):
        if getattr(value, "__module__", None) == module.__name__ and callable(value):
            found[name] = value
            if inspect.isclass(value):
                methods = _public_members(value)
                found |= {f"{name}.{key}": method for key, method in methods if callable(method)}
    return found


def _public_members(owner: object) -> list[tuple[str, Any]]:
    return [(name, getattr(owner, name)) for name in vars(owner) if not name.startswith("_")]


def check_calls_accepted(part: Part, expected: Mapping[str, Callable[..., Any]]) -> None:
    """Fail unless each function of ``part`` has the parameters of the one in ``expected``.

    Names, kinds, order and defaults are compared. Keyword-only parameters with defaults may be
    added.

    Args:
        part: A submodule of the target.
        expected: For each name, such as ``DataParallel.scatter``: a function or class.
    """
    __tracebackhide__ = True
    found = ((name, attrgetter(name)(part), function) for name, function in expected.items())
    differences = [text for each in found if (text := _difference(*each))]
    assert not differences, "\n".join(differences)


def _difference(name: str, found: Callable[..., Any], expected: Callable[..., Any]) -> str:
    """Return a text if the signature of ``found`` is not as expected, else an empty text."""
    offered, wanted = _parameters(found), _parameters(expected)
    names = {each.name for each in wanted}
    shared = [each for each in offered if each.name in names or not _is_extra(each)]
    if shared == wanted:
        return ""
    lacking = sorted(names - {each.name for each in offered})
    suffix = f", without {', '.join(lacking)}" if lacking else ""
    return f"{name}{_format(wanted)} was expected; it is {name}{_format(offered)}{suffix}"


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters without annotations. Variadic ones get the same names everywhere."""
    return [
        each.replace(annotation=Parameter.empty, name=_VARIADIC.get(each.kind, each.name))
        for each in inspect.signature(function).parameters.values()
    ]


def _is_extra(parameter: Parameter) -> bool:
    """Return whether every call without this parameter is valid."""
    is_optional = parameter.default is not Parameter.empty
    return parameter.kind is Parameter.KEYWORD_ONLY and is_optional


def _format(parameters: list[Parameter]) -> str:
    return str(inspect.Signature(parameters))
