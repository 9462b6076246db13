"""Exceptions to raise: built-in classes, and classes whose own methods raise."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import torch

from spec_tests.strategies.exceptions import ExceptionSpec

__all__ = ["ERRORS"]

#: The length in characters of a long error text.
_LONG = 10**6
#: The number of exceptions in a chain of causes. It is larger than the recursion limit.
_CHAIN = 1500
_TEXT = "an injected fault"


def _refuse(*_: Any) -> NoReturn:
    raise LookupError("a method of the injected fault raises")


class ReprError(ValueError):
    """An exception whose ``__repr__`` and ``__str__`` raise."""

    __repr__ = _refuse
    __str__ = _refuse


class ArgsError(ValueError):
    """An exception whose attribute ``args`` raises."""

    args = property(_refuse, _refuse)


class DelError(ValueError):
    """An exception whose ``__del__`` raises."""

    __del__ = _refuse


class FixedError(ValueError):
    """An exception whose attributes, traceback and notes cannot be set."""

    __setattr__ = _refuse
    with_traceback = _refuse
    add_note = _refuse


class TracebackError(ValueError):
    """An exception whose attribute ``__traceback__`` cannot be read."""

    __traceback__ = property(_refuse, _refuse)


class CauseError(ValueError):
    """An exception whose cause and context cannot be read."""

    __cause__ = property(_refuse, _refuse)
    __context__ = property(_refuse, _refuse)


class _ClassWithoutIsinstance(type):
    """A metaclass: ``isinstance`` raises an error for its classes."""

    # `__subclasscheck__` is not overridden, because CPython calls it to raise an exception.
    __instancecheck__ = _refuse


class NoIsinstanceError(ValueError, metaclass=_ClassWithoutIsinstance):
    """An exception for whose class ``isinstance`` raises an error."""


class BareError(BaseException):
    """An exception that derives from BaseException, but not from Exception."""


class OtherObjectError(ValueError):
    """An exception whose constructor returns an int for the text of a report, "Caught ..."."""

    def __new__(cls, text: str = _TEXT) -> Any:
        """Return an int if the text begins with "Caught"."""
        return super().__new__(cls, text) if not text.startswith("Caught") else 7


class MessageError(ValueError):
    """An exception whose attribute ``message`` raises."""

    message = property(_refuse)


def _overflow_stack() -> BaseException:
    def descend() -> NoReturn:
        descend()

    try:
        descend()
    except RecursionError as error:
        return error.with_traceback(None)


def _make_chain() -> BaseException:
    error: BaseException = ValueError("the first cause")
    for _ in range(_CHAIN):
        outer = ValueError(_TEXT)
        outer.__cause__ = error
        error = outer
    return error


def _make_cycle() -> BaseException:
    error, other = ValueError(_TEXT), KeyError("other")
    error.__cause__, other.__context__ = other, error
    return error


def _with_notes(notes: object) -> BaseException:
    error = ValueError(_TEXT)
    vars(error)["__notes__"] = notes
    return error


_BUILTIN = (
    *(ValueError, KeyError, OSError, RuntimeError, AttributeError, AssertionError, TypeError),
    *(StopIteration, StopAsyncIteration, NotImplementedError, UnicodeDecodeError, ImportError),
    *(MemoryError, RecursionError, SyntaxError, TimeoutError, UserWarning, Exception),
    *(torch.OutOfMemoryError, torch.AcceleratorError, asyncio.CancelledError),
    *(KeyboardInterrupt, SystemExit, GeneratorExit, BaseException, BareError),
)
#: Name of a kind of exception -> a function that makes a new one.
ERRORS: dict[str, Callable[[], BaseException]] = {
    **{each.__name__: partial(ExceptionSpec(each).make, _TEXT) for each in _BUILTIN},
    "ExceptionGroup": lambda: ExceptionGroup(_TEXT, [ValueError(1), OSError(2)]),
    "BaseExceptionGroup": lambda: BaseExceptionGroup(_TEXT, [BareError(), SystemExit(3)]),
    "nested group": lambda: ExceptionGroup(_TEXT, [ExceptionGroup(_TEXT, [ReprError()])]),
    "str and repr raise": ReprError,
    "str exits": lambda: ExceptionSpec(constructor="inherited", prints="exits").make(_TEXT),
    "args raises": ArgsError,
    "del raises": DelError,
    "attributes refused": FixedError,
    "isinstance raises": NoIsinstanceError,
    "traceback refused": TracebackError,
    "causes refused": CauseError,
    "text refused": lambda: ExceptionSpec(constructor="picky").make(_TEXT),
    "two arguments": lambda: ExceptionSpec(constructor="two").make(_TEXT),
    "no arguments": lambda: ExceptionSpec(constructor="nothing").make(_TEXT),
    "message property": MessageError,
    "other object": OtherObjectError,
    "stack overflow": _overflow_stack,
    "long chain": _make_chain,
    "cyclic chain": _make_cycle,
    "long text": lambda: ValueError("x" * _LONG),
    "lone surrogate and NUL": lambda: ValueError("\ud800\0"),
    "notes that are no list": lambda: _with_notes(5),
    "notes that are no texts": lambda: _with_notes([None, b"bytes"]),
}
