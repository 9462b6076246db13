"""Exceptions with all kinds of constructors, ``message`` attributes and ``str``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

#: Exceptions of Python and torch whose constructor takes one text.
TEXTUAL = (
    ValueError,
    KeyError,
    RuntimeError,
    OSError,
    FileNotFoundError,
    AttributeError,
    AssertionError,
    StopIteration,
    NotImplementedError,
    torch.OutOfMemoryError,
    Exception,
)
#: The kinds of constructors of generated classes.
CONSTRUCTORS = ("inherited", "two", "keyword", "nothing", "picky", "ignoring", "message")
#: The kinds of the attribute ``message`` of generated classes.
MESSAGES = ("absent", "empty", "instance", "class", "property", "slot")
#: The kinds of ``__str__``; ``message`` is the inherited method.
PRINTS = ("message", "constant", "picky", "raises", "ends")


@dataclass(frozen=True)
class ExceptionSpec:
    """A description of an exception.

    Args:
        base: The class, or the base of a generated class.
        constructor: One of `CONSTRUCTORS`; ``builtin`` stands for the class ``base``.
        message: One of `MESSAGES`.
        slots: Whether the class has ``__slots__``.
        prints: One of `PRINTS`.
    """

    base: type[BaseException] = ValueError
    constructor: str = "builtin"
    message: str = "absent"
    slots: bool = False
    prints: str = "message"

    def make(self, text: str) -> BaseException:
        """Return a new exception with ``text``. Its class is new unless it is builtin."""
        if self.constructor == "builtin":
            return _make_builtin(self.base, text)
        error = _MAKE[self.constructor](self._kind(text), text)
        if self.message == "instance":
            error.message = text  # type: ignore[attr-defined]
        return error

    def _kind(self, text: str) -> Any:
        names: dict[str, Any] = {"__module__": "generated", **_BUILD[self.constructor]}
        names.update(_MESSAGE[self.message](text))
        if self.slots:
            names["__slots__"] = (*names.get("__slots__", ()), "detail")
        if self.prints != "message":
            names["__str__"] = _PRINT[self.prints]
        return type("Generated", (self.base,), names)


def _make_builtin(kind: type[BaseException], text: str) -> BaseException:
    if issubclass(kind, BaseExceptionGroup):
        return kind(text, [ValueError("inside")])
    if issubclass(kind, OSError):
        return kind(2, text)
    if issubclass(kind, UnicodeDecodeError):
        return kind("utf-8", b"bytes", 0, 1, text)
    return kind(text)


def _print_constant(_: BaseException) -> str:
    return "always these words"


def _print_own_text(self: BaseException) -> str:
    if str(self.args[0]).startswith("Caught"):
        raise LookupError("this class prints no text of that kind")
    return str(self.args[0])


def _refuse_to_print(_: BaseException) -> str:
    raise RuntimeError("this exception cannot be printed")


def _end_instead_of_printing(_: BaseException) -> str:
    raise SystemExit("this class ends the program")


def _init_two(self: Any, text: str, code: int) -> None:
    BaseException.__init__(self, text)
    self.code = code


def _init_keyword(self: Any, *, text: str) -> None:
    BaseException.__init__(self, text)


def _init_nothing(self: Any) -> None:
    BaseException.__init__(self, "nothing was asked")


def _init_picky(self: Any, text: str) -> None:
    if text.startswith("Caught"):
        raise LookupError("this class takes no text of that kind")
    BaseException.__init__(self, text)


def _init_ignoring(self: Any, text: str) -> None:
    BaseException.__init__(self, "always these words")


def _init_message(self: Any, *, message: str) -> None:
    BaseException.__init__(self, message)


def _init_exiting(self: Any, text: str) -> None:
    if text.startswith("Caught"):
        raise SystemExit("this class ends the program")
    BaseException.__init__(self, text)


_BUILD: dict[str, dict[str, Any]] = {
    "inherited": {},
    "two": {"__init__": _init_two},
    "keyword": {"__init__": _init_keyword},
    "nothing": {"__init__": _init_nothing},
    "picky": {"__init__": _init_picky},
    "ignoring": {"__init__": _init_ignoring},
    "message": {"__init__": _init_message},
    "exiting": {"__init__": _init_exiting},
}

_MAKE: dict[str, Callable[[Any, str], BaseException]] = {
    "inherited": lambda kind, text: kind(text),
    "two": lambda kind, text: kind(text, 7),
    "keyword": lambda kind, text: kind(text=text),
    "nothing": lambda kind, text: kind(),
    "picky": lambda kind, text: kind(text),
    "ignoring": lambda kind, text: kind(text),
    "message": lambda kind, text: kind(message=text),
    "exiting": lambda kind, text: kind(text),
}

_MESSAGE: dict[str, Callable[[str], dict[str, Any]]] = {
    "absent": lambda text: {},
    "empty": lambda text: {"message": ""},
    "instance": lambda text: {},
    "class": lambda text: {"message": text},
    "property": lambda text: {"message": property(lambda self: text)},
    "slot": lambda text: {"__slots__": ("message",)},
}


_PRINT: dict[str, Callable[[BaseException], str]] = {
    "constant": _print_constant,
    "picky": _print_own_text,
    "raises": _refuse_to_print,
    "ends": _end_instead_of_printing,
}


def builtin_exceptions(
    kinds: Sequence[type[BaseException]] = TEXTUAL,
) -> st.SearchStrategy[ExceptionSpec]:
    """Draw exceptions of existing classes. Shrinks to the first of ``kinds``."""
    return st.builds(ExceptionSpec, base=st.sampled_from(kinds))


def generated_exceptions(
    *,
    bases: Sequence[type[BaseException]] = (Exception, ValueError, OSError, StopIteration),
    constructors: Sequence[str] = CONSTRUCTORS,
    messages: Sequence[str] = MESSAGES,
    prints: Sequence[str] = ("message",),
) -> st.SearchStrategy[ExceptionSpec]:
    """Draw exceptions of generated classes. Shrinks to the first of each choice."""
    return st.builds(
        ExceptionSpec,
        base=st.sampled_from(bases),
        constructor=st.sampled_from(constructors),
        message=st.sampled_from(messages),
        slots=st.booleans(),
        prints=st.sampled_from(prints),
    )


#: Exceptions of existing and of generated classes.
ANY_EXCEPTIONS = builtin_exceptions(
    [*TEXTUAL, ExceptionGroup, UnicodeDecodeError]
) | generated_exceptions(prints=PRINTS)
#: Exceptions that ``except Exception`` does not catch.
BASE_EXCEPTIONS = builtin_exceptions([KeyboardInterrupt, SystemExit, GeneratorExit, BaseException])
