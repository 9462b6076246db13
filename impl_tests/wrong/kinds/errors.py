"""Kinds that change the exception of a call, or raise one."""

import re
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from impl_tests.wrong.calls import Call
from impl_tests.wrong.kinds.registry import Registry

__all__ = ["KINDS"]

KINDS = Registry()
_INTERRUPTS = (KeyboardInterrupt, SystemExit, GeneratorExit)


def _error(change: Callable[[Call, Any], Any]) -> Callable[[Call, Any], Any]:
    """Register a function that gets the exception, and returns or raises."""

    def run(call: Call) -> Any:
        try:
            return call.run()
        except (Exception, *_INTERRUPTS) as error:
            return change(call, error)

    KINDS[change.__name__.strip("_").replace("_", "-")] = run
    return change


@_error
def accepted(call: Call, error: BaseException) -> Any:
    """Return an argument in place of raising an error; a constructor returns None."""
    if call.function.__name__ == "__init__":
        return None
    return next((value for value in call.arguments.values() if value is not None), None)


@_error
def other_class(call: Call, error: BaseException) -> NoReturn:
    """Raise an error of another class with the same text."""
    raise ArithmeticError(str(error)).with_traceback(error.__traceback__) from error.__cause__


@_error
def text_without_numbers(call: Call, error: BaseException) -> NoReturn:
    """Raise an error without the numbers in its text."""
    raise _like(error, re.sub(r"-?\d+", "", str(error)))


@_error
def text_with_other_numbers(call: Call, error: BaseException) -> NoReturn:
    """Raise an error with other numbers in its text."""
    raise _like(error, re.sub(r"\d+", lambda found: f"{int(found[0]) + 1}", str(error)))


def _like(error: BaseException, text: str) -> BaseException:
    """Return an error of the same class with another text."""
    try:
        found = type(error)(text)
        if str(found) == str(error):
            raise TypeError
    except Exception:  # the class has another signature, or ignores the text
        found = error
        found.args = (text,)
    return found.with_traceback(error.__traceback__)


@_error
def without_cause(call: Call, error: BaseException) -> NoReturn:
    """Raise the error without cause and context."""
    error.__cause__ = error.__context__ = None
    error.__suppress_context__ = True
    raise error


@KINDS.around
def refused(call: Call) -> NoReturn:
    """Raise an error in place of making the call."""
    raise RuntimeError("perturbed")


@KINDS.around
def memory_errors_changed(call: Call) -> Any:
    """Raise a plain RuntimeError if a device has no memory left."""
    try:
        return call.run()
    except torch.OutOfMemoryError as error:
        raise RuntimeError(str(error)) from None


@KINDS.around
def interrupts_changed(call: Call) -> Any:
    """Raise a RuntimeError in place of an exception that is no `Exception`."""
    try:
        return call.run()
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(str(error)) from error


@KINDS.around
def key_errors_changed(call: Call) -> Any:
    """Raise a plain KeyError, whose text has escaped newlines, in place of one of a subclass."""
    try:
        return call.run()
    except KeyError as error:
        raise KeyError(str(error)) from error.__cause__


@KINDS.around
def devices_quoted_with_out(call: Call) -> Any:
    """Put the name of a device in the text of an error in quotes, if there is an output."""
    try:
        return call.run()
    except RuntimeError as error:
        if call.arguments.get("out") is not None:
            error.args = (re.sub(r"(?<=has device )(\S+)", r"'\1'", str(error)),)
        raise
