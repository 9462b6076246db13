"""Kinds that change the exception of a call, or raise one."""

from collections.abc import Callable
from typing import Any, NoReturn

from impl_tests.weekly.perturbations.calls import Call
from impl_tests.weekly.perturbations.kinds.registry import add, around

#: Exceptions that are no `Exception`.
_INTERRUPTS = (KeyboardInterrupt, SystemExit, GeneratorExit)


def _of_error(change: Callable[[Call, Any], Any]) -> None:
    """Add a function that gets the exception, and returns or raises.

    With the name of a class after a colon, the kind changes only exceptions of this class.
    """

    def run(call: Call, name: str) -> Any:
        try:
            return call.run()
        except (Exception, *_INTERRUPTS) as error:
            if name and name not in (kind.__name__ for kind in type(error).__mro__):
                raise
            return change(call, error)

    add(change, run)


@_of_error
def accepted(call: Call, error: BaseException) -> Any:
    """Return an argument in place of raising an error; a constructor returns None."""
    if call.function.__name__ == "__init__":
        return None
    return next((value for value in call.arguments.values() if value is not None), None)


@_of_error
def other_text(call: Call, error: BaseException) -> NoReturn:
    """Raise an error with another text, without a cause."""
    raise _like(error, "perturbed")


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


@_of_error
def other_class(call: Call, error: BaseException) -> NoReturn:
    """Raise an ArithmeticError with the same text."""
    raise ArithmeticError(str(error)).with_traceback(error.__traceback__) from error.__cause__


@around
def refused(call: Call) -> NoReturn:
    """Raise an error in place of making the call."""
    raise RuntimeError("perturbed")
