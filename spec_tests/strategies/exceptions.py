"""Exceptions with all kinds of constructors, ``message`` attributes and ``__str__`` methods.

parallel_apply raises a new exception of the same class whose text begins with "Caught". Some
classes here reject this text in the constructor or in ``__str__``.
"""

from collections.abc import Callable, Mapping, Sequence
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


@dataclass(frozen=True)
class ExceptionSpec:
    """A description of an exception.

    Args:
        base: The class of the exception, or the base of its generated class.
        constructor: A key of `_INIT`; ``builtin`` means ``base`` itself.
        message: One of `MESSAGES`.
        slots: Whether the generated class has a slot ``detail``.
        prints: What ``__str__`` does: one of `PRINTS`.
        notes: The notes of the exception.
        link: One of `LINKS`: the exception has a LookupError as cause (``from``), as context
            (``while``), or as suppressed context (``from None``).
    """

    base: type[BaseException] = ValueError
    constructor: str = "builtin"
    message: str = "absent"
    slots: bool = False
    prints: str = "inherited"
    notes: tuple[str, ...] = ()
    link: str = ""

    def make(self, text: str) -> BaseException:
        """Return a new exception with ``text``, of class ``base`` or of a new subclass."""
        error = self._make(text)
        for note in self.notes:
            error.add_note(note)
        if self.link:
            error.__context__ = first = LookupError("the first error")
            error.__cause__ = first if self.link == "from" else None
            error.__suppress_context__ = self.link != "while"
        return error

    def _make(self, text: str) -> BaseException:
        if self.constructor == "builtin":
            return _make_builtin(self.base, text)
        arguments = _ARGUMENTS.get(self.constructor)
        args, kwargs = ((text,), {}) if arguments is None else arguments(text)
        error: BaseException = self._make_class(text)(*args, **kwargs)
        if self.message == "instance":
            error.message = text  # type: ignore[attr-defined]
        return error

    def _make_class(self, text: str) -> Any:
        members = {"__module__": "generated", **_MESSAGE_MEMBER[self.message](text)}
        if self.slots:
            members["__slots__"] = (*members.get("__slots__", ()), "detail")
        methods = {"__init__": _INIT[self.constructor], "__str__": _STR[self.prints]}
        members |= {name: method for name, method in methods.items() if method is not None}
        return type("Generated", (self.base,), members)


def _make_builtin(error_class: type[BaseException], text: str) -> BaseException:
    if issubclass(error_class, BaseExceptionGroup):
        return error_class(text, [ValueError("inside")])
    if issubclass(error_class, OSError):
        return error_class(2, text)
    if issubclass(error_class, UnicodeDecodeError):
        return error_class("utf-8", b"bytes", 0, 1, text)
    return error_class(text)


def _begins_with_caught(error: BaseException) -> bool:
    return str(error.args[0]).startswith("Caught")


def _init_picky(self: Any, text: str) -> None:
    BaseException.__init__(self, text)
    if _begins_with_caught(self):
        raise LookupError("this class does not accept a text that begins with Caught")


def _init_exiting(self: Any, text: str) -> None:
    BaseException.__init__(self, text)
    if _begins_with_caught(self):
        raise SystemExit("this class ends the program")


def _init_two(self: Any, text: str, code: int) -> None:
    BaseException.__init__(self, text)
    self.code = code


def _str_picky(self: BaseException) -> str:
    if _begins_with_caught(self):
        raise LookupError("this class does not print a text that begins with Caught")
    return str(self.args[0])


def _str_raises(_: BaseException) -> str:
    raise RuntimeError("this exception cannot be printed")


def _str_exits(_: BaseException) -> str:
    raise SystemExit("this class ends the program")


#: For each kind of constructor: the constructor; None for that of the base class. A constructor
#: gets the text, unless it is in `_ARGUMENTS`.
_INIT: Mapping[str, Callable[..., None] | None] = {
    "inherited": None,
    "two": _init_two,
    "keyword": lambda self, *, text: BaseException.__init__(self, text),
    "nothing": lambda self: BaseException.__init__(self, "no arguments"),
    "picky": _init_picky,
    "ignoring": lambda self, text: BaseException.__init__(self, "a constant text"),
    "message": lambda self, *, message: BaseException.__init__(self, message),
    "exiting": _init_exiting,
}
#: For each kind of constructor: a function that returns its positional and keyword arguments,
#: given the text.
_ARGUMENTS: Mapping[str, Callable[[str], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "two": lambda text: ((text, 7), {}),
    "keyword": lambda text: ((), {"text": text}),
    "nothing": lambda text: ((), {}),
    "message": lambda text: ((), {"message": text}),
}
#: The kinds of constructors. The constructor ``exiting`` ends the program.
CONSTRUCTORS = tuple(kind for kind in _INIT if kind != "exiting")
#: For each kind of attribute ``message``: a function that returns the members of the class, given
#: the text.
_MESSAGE_MEMBER: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "absent": lambda text: {},
    "empty": lambda text: {"message": ""},
    "instance": lambda text: {},  # Each instance has the attribute.
    "class": lambda text: {"message": text},
    "property": lambda text: {"message": property(lambda self: text)},
    "slot": lambda text: {"__slots__": ("message",)},  # The slot has no value.
}
MESSAGES = tuple(_MESSAGE_MEMBER)
#: For each kind of ``__str__``: the method; None for that of the base class.
_STR: Mapping[str, Callable[[BaseException], str] | None] = {
    "inherited": None,
    "constant": lambda self: "a constant text",
    "picky": _str_picky,
    "raises": _str_raises,
    "exits": _str_exits,
}
PRINTS = tuple(_STR)


LINKS = ("from", "while", "from None")
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
