"""Conversion of arguments, as pybind11 converts the arguments of the real primitives.

The types of all arguments are checked before anything else.
"""

import ctypes
import functools
import inspect
from collections.abc import Callable
from types import GeneratorType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")

#: The classes that count as lists although they have no ``__getitem__``.
_LISTS: tuple[type, ...] = (
    GeneratorType,
    set,
    frozenset,
    map,
    zip,
    type({}.keys()),
    type({}.values()),
)


def primitive(
    **converters: Callable[[Any], Any],
) -> Callable[[Callable[_Args, _Result]], Callable[_Args, _Result]]:
    """Make a function a stand-in: convert its arguments, and raise a TypeError for wrong types.

    Like a function in C++, a stand-in ignores ``__torch_function__``.

    Args:
        **converters: For each parameter a function that returns the converted argument. It raises
            a TypeError if the argument has the wrong type.
    """

    def decorate(function: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
        signature = inspect.signature(function)

        def convert(*args: object, **kwargs: object) -> list[Any]:
            try:
                values = signature.bind(*args, **kwargs).args if kwargs else args
                return [
                    convert_one(value)
                    for convert_one, value in zip(converters.values(), values, strict=False)
                ]
            except TypeError:
                raise TypeError(
                    f"_{function.__name__}(): incompatible function arguments. "
                    "The following argument types are supported:"
                ) from None

        @functools.wraps(function)
        def run(*args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
            with torch._C.DisableTorchFunction():
                return function(*convert(*args, **kwargs))  # type: ignore[call-arg]

        return run

    return decorate


def as_tensor(value: object) -> Tensor:
    """Return ``value`` if it is a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError
    return value


def integer(minimum: int = -(2**63), maximum: int = 2**63 - 1) -> Callable[[Any], int]:
    """Return a function that converts numbers from ``minimum`` to ``maximum``, except floats."""

    def convert(value: Any) -> int:
        if type(value) is not int and (
            isinstance(value, float | str) or getattr(value, "ndim", 0) != 0
        ):
            raise TypeError
        number = int(value)
        if not minimum <= number <= maximum:
            raise TypeError
        return number

    return convert


def list_of(convert_member: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    """Return a function that converts collections with `convert_member` to lists."""

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple) and (
            isinstance(value, str | bytes) or not (is_sequence(value) or isinstance(value, _LISTS))
        ):
            raise TypeError
        return [convert_member(member) for member in value]

    return convert


def optional(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that converts values with ``convert`` and returns None for None."""
    return lambda value: None if value is None else convert(value)


def anything(value: object) -> object:
    """Return ``value``."""
    return value


def is_sequence(value: object) -> bool:
    """Return whether C functions accept ``value`` as a sequence. Tensors are no sequences."""
    return bool(ctypes.pythonapi.PySequence_Check(ctypes.py_object(value)))
