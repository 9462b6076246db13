"""Exceptions with all kinds of constructors, ``message`` attributes and ``__str__`` methods.

parallel_apply raises a new exception of the same class whose text begins with "Caught". Some
classes here reject this text in the constructor or in ``__str__``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

#: Exceptions of Python and torch that can be constructed from one text.
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
#: The kinds of constructors of generated classes:
#:
#: * inherited: the constructor of the base class,
#: * two: requires a text and a code,
#: * keyword: takes only the keyword argument ``text``,
#: * nothing: takes no arguments,
#: * picky: raises a LookupError for a text that begins with "Caught",
#: * ignoring: replaces the text by a constant,
#: * message: takes only the keyword argument ``message``.
#:
#: The kind ``exiting`` is not in this tuple. Its constructor raises SystemExit for a text that
#: begins with "Caught".
CONSTRUCTORS = ("inherited", "two", "keyword", "nothing", "picky", "ignoring", "message")
#: How a generated class defines the attribute ``message``:
#:
#: * absent: not at all,
#: * empty: as an empty text in the class,
#: * instance: as the text, in each instance,
#: * class: as the text, in the class,
#: * property: as a property that returns the text,
#: * slot: as a slot without a value.
MESSAGES = ("absent", "empty", "instance", "class", "property", "slot")
#: What ``__str__`` of a generated class does:
#:
#: * inherited: calls the method of the base class,
#: * constant: returns a constant,
#: * picky: raises a LookupError for a text that begins with "Caught",
#: * raises: always raises a RuntimeError,
#: * exits: always raises SystemExit.
PRINTS = ("inherited", "constant", "picky", "raises", "exits")


@dataclass(frozen=True)
class ExceptionSpec:
    """A description of an exception.

    Args:
        base: The class of the exception, or the base of its generated class.
        constructor: One of `CONSTRUCTORS`, or ``exiting``; ``builtin`` means ``base`` itself.
        message: One of `MESSAGES`.
        slots: Whether the generated class has a slot ``detail``.
        prints: What ``__str__`` does: one of `PRINTS`.
        notes: The notes of the exception.
    """

    base: type[BaseException] = ValueError
    constructor: str = "builtin"
    message: str = "absent"
    slots: bool = False
    prints: str = "inherited"
    notes: tuple[str, ...] = ()

    def make(self, text: str) -> BaseException:
        """Return a new exception with ``text``, of class ``base`` or of a new subclass."""
        error = self._make(text)
        for note in self.notes:
            error.add_note(note)
        return error

    def _make(self, text: str) -> BaseException:
        if self.constructor == "builtin":
            return _make_builtin(self.base, text)
        error_class = self._make_class(text)
        make = _NEW_EXCEPTION.get(self.constructor)
        error: BaseException = error_class(text) if make is None else make(error_class, text)
        if self.message == "instance":
            error.message = text  # type: ignore[attr-defined]
        return error

    def _make_class(self, text: str) -> Any:
        members: dict[str, Any] = {"__module__": "generated", **_INIT_MEMBER[self.constructor]}
        members.update(_MESSAGE_MEMBER[self.message](text))
        if self.slots:
            members["__slots__"] = (*members.get("__slots__", ()), "detail")
        if self.prints != "inherited":
            members["__str__"] = _STR_METHOD[self.prints]
        return type("Generated", (self.base,), members)


def _make_builtin(error_class: type[BaseException], text: str) -> BaseException:
    if issubclass(error_class, BaseExceptionGroup):
        return error_class(text, [ValueError("inside")])
    if issubclass(error_class, OSError):
        return error_class(2, text)
    if issubclass(error_class, UnicodeDecodeError):
        return error_class("utf-8", b"bytes", 0, 1, text)
    return error_class(text)


def _str_constant(_: BaseException) -> str:
    return "a constant text"


def _str_picky(self: BaseException) -> str:
    if str(self.args[0]).startswith("Caught"):
        raise LookupError("this class does not print a text that begins with Caught")
    return str(self.args[0])


def _str_raises(_: BaseException) -> str:
    raise RuntimeError("this exception cannot be printed")


def _str_exits(_: BaseException) -> str:
    raise SystemExit("this class ends the program")


def _init_two(self: Any, text: str, code: int) -> None:
    BaseException.__init__(self, text)
    self.code = code


def _init_keyword(self: Any, *, text: str) -> None:
    BaseException.__init__(self, text)


def _init_without_arguments(self: Any) -> None:
    BaseException.__init__(self, "no arguments")


def _init_picky(self: Any, text: str) -> None:
    if text.startswith("Caught"):
        raise LookupError("this class does not accept a text that begins with Caught")
    BaseException.__init__(self, text)


def _init_ignoring(self: Any, text: str) -> None:
    BaseException.__init__(self, "a constant text")


def _init_message(self: Any, *, message: str) -> None:
    BaseException.__init__(self, message)


def _init_exiting(self: Any, text: str) -> None:
    if text.startswith("Caught"):
        raise SystemExit("this class ends the program")
    BaseException.__init__(self, text)


#: Kind of constructor -> the members of a class with this constructor.
_INIT_MEMBER: dict[str, dict[str, Any]] = {
    "inherited": {},
    "two": {"__init__": _init_two},
    "keyword": {"__init__": _init_keyword},
    "nothing": {"__init__": _init_without_arguments},
    "picky": {"__init__": _init_picky},
    "ignoring": {"__init__": _init_ignoring},
    "message": {"__init__": _init_message},
    "exiting": {"__init__": _init_exiting},
}

#: Kind of constructor -> a function that takes a class and a text and returns a new exception. The
#: other constructors get the text.
_NEW_EXCEPTION: dict[str, Callable[[Any, str], BaseException]] = {
    "two": lambda error_class, text: error_class(text, 7),
    "keyword": lambda error_class, text: error_class(text=text),
    "nothing": lambda error_class, text: error_class(),
    "message": lambda error_class, text: error_class(message=text),
}

#: One of `MESSAGES` -> the function that returns the members of the class, given the text.
_MESSAGE_MEMBER: dict[str, Callable[[str], dict[str, Any]]] = {
    "absent": lambda text: {},
    "empty": lambda text: {"message": ""},
    "instance": lambda text: {},
    "class": lambda text: {"message": text},
    "property": lambda text: {"message": property(lambda self: text)},
    "slot": lambda text: {"__slots__": ("message",)},
}

#: Kind of ``__str__`` -> the method.
_STR_METHOD: dict[str, Callable[[BaseException], str]] = {
    "constant": _str_constant,
    "picky": _str_picky,
    "raises": _str_raises,
    "exits": _str_exits,
}


#: The notes of an exception.
NOTES = st.sampled_from([(), ("a note",), ("two\nlines", "")])


def builtin_exceptions(
    classes: Sequence[type[BaseException]] = TEXTUAL,
) -> st.SearchStrategy[ExceptionSpec]:
    """Draw descriptions of exceptions of existing classes. Shrinks to the first of ``classes``."""
    return st.builds(ExceptionSpec, base=st.sampled_from(classes), notes=NOTES)


def generated_exceptions(
    *,
    bases: Sequence[type[BaseException]] = (Exception, ValueError, OSError, StopIteration),
    constructors: Sequence[str] = CONSTRUCTORS,
    messages: Sequence[str] = MESSAGES,
    prints: Sequence[str] = ("inherited",),
) -> st.SearchStrategy[ExceptionSpec]:
    """Draw descriptions of exceptions of generated classes. Shrinks to the first elements."""
    return st.builds(
        ExceptionSpec,
        base=st.sampled_from(bases),
        constructor=st.sampled_from(constructors),
        message=st.sampled_from(messages),
        slots=st.booleans(),
        prints=st.sampled_from(prints),
        notes=NOTES,
    )


#: Exceptions of existing and of generated classes.
ANY_EXCEPTIONS = builtin_exceptions(
    [*TEXTUAL, ExceptionGroup, UnicodeDecodeError]
) | generated_exceptions(prints=PRINTS)
#: Exceptions that ``except Exception`` does not catch.
BASE_EXCEPTIONS = builtin_exceptions([KeyboardInterrupt, SystemExit, GeneratorExit, BaseException])
