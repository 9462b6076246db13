"""An exception's way from a replica to the caller's thread."""

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Never

__all__ = ["CapturedError", "capture", "format_error", "raise_rebuilt", "reraise"]

_SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class CapturedError:
    """What :func:`capture` returns in place of a result."""

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error = error

    @property
    def is_interrupt(self) -> bool:
        """Whether it asks to stop, as Ctrl-C does, not only tells that something went wrong."""
        return not isinstance(self._error, Exception)

    def pop(self) -> BaseException:
        """Give the exception away, once: the frames that it comes through must not keep it."""
        error = self._error
        del self._error
        return error


class _KeyErrorMessage(str):
    """A text that stays readable where an exception shows the ``repr`` of its argument."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def capture(function: Callable[..., Any], /, *args: Any) -> Any:
    """Call ``function(*args)``.

    Returns:
        Its result, or a :class:`CapturedError` that holds the exception. The frames that this
        exception came through have forgotten their local variables, so that it keeps no
        tensor alive and belongs to no reference cycle of theirs.
    """
    try:
        return function(*args)
    except BaseException as error:
        # The frames of the traceback lead to this one, and so to what it would still hold.
        del function, args
        return _capture_error(error)


def _capture_error(error: BaseException) -> CapturedError:
    trace = error.__traceback__
    with suppress(Exception):
        for each in _chain(error):
            _clear_frames(each)
    # The traceback begins with the frame of `capture`, which is none of the replica's.
    return CapturedError(error.with_traceback(trace and trace.tb_next))


def reraise(error: BaseException, where: str) -> Never:
    """Raise in this thread what a replica raised in its own.

    Args:
        error: The replica's exception, from :meth:`CapturedError.pop`.
        where: The replica and its device: ``"in replica 1 on device 1"``.

    Raises:
        Exception: Of the type of ``error`` if that can be built from a text, else a
            RuntimeError. Its message, or a note where ``__str__`` does not return what the
            constructor was given, holds ``where`` and the original traceback; its cause is
            ``error``, without its traceback.
        BaseException: ``error`` itself, with a note that holds ``where``, if it is no
            Exception.
    """
    try:
        if isinstance(error, Exception):
            raise _rebuild(error, format_error(error, where)) from _without_traceback(error)
        with suppress(Exception):
            error.add_note(f"Raised {where}.")
        raise error
    finally:
        del error  # Its traceback holds this frame, which must not hold it in turn: a cycle.


def raise_rebuilt(error: Exception | None, text: str) -> Never:
    """Raise in this process what was raised in another.

    Args:
        error: The exception; None where it could not be sent.
        text: The result of :func:`format_error`.

    Raises:
        Exception: Of the type of ``error`` if that can be built from a text, else a
            RuntimeError. Its message or a note holds ``text``; its cause is ``error``.
    """
    if error is None:
        raise RuntimeError(text)
    cause = _without_traceback(error)
    raise _rebuild(error, text) from cause


def format_error(error: Exception, where: str) -> str:
    """Return the type of ``error``, its place ``where``, and its traceback, as text."""
    return f"Caught {type(error).__name__} {where}.\nOriginal {_format_traceback(error)}"


def _format_traceback(error: BaseException, *outer: BaseException) -> str:
    """Format ``error`` and its causes, but no cause that its own text already tells.

    The error of a nested ``parallel_apply`` tells its cause; told twice at each level, the
    text would double with every one. ``outer`` are the errors that ``error`` is a cause of.
    """
    cause, seen = error.__cause__, (*outer, error)
    told = False
    if cause is not None and all(cause is not other for other in seen):
        told = _shows(error, _format_traceback(cause, *seen))
    with suppress(Exception):
        return "".join(traceback.format_exception(error, chain=not told))
    lines = "".join(traceback.format_tb(error.__traceback__))
    return f"Traceback (most recent call last):\n{lines}{type(error).__name__}\n"


def _rebuild(error: Exception, text: str) -> Exception:
    """Return an exception of the type of ``error`` that shows ``text``, else a RuntimeError."""
    silent = []
    for candidate in _candidates(error, text):
        if _shows(candidate, text):
            return candidate
        silent.append(candidate)
    for candidate in silent:
        with suppress(Exception):
            candidate.add_note(text)
            return candidate
    return RuntimeError(text)


def _candidates(error: Exception, text: str) -> Iterator[Exception]:
    """Yield new exceptions of the type of ``error`` that were given ``text``."""
    argument = _KeyErrorMessage(text) if isinstance(error, KeyError) else text
    for construct in _constructors(error):
        with suppress(Exception):
            candidate = construct(argument)
            # A constructor may give anything: another class, or one and the same object always.
            if isinstance(candidate, type(error)) and candidate is not error:
                if not _shows(candidate, text):
                    with suppress(Exception):
                        candidate.args = (argument,)
                yield candidate


def _constructors(error: Exception) -> Iterator[Callable[[str], object]]:
    kind: Any = type(error)
    if _has_message(kind):
        yield lambda text: kind(message=text)
    yield kind
    if isinstance(error, ExceptionGroup):
        yield lambda text: kind(text, error.exceptions)


def _has_message(kind: type[Exception]) -> bool:
    with suppress(Exception):
        return bool(getattr(kind, "message", None))
    return False


def _shows(error: BaseException, text: str) -> bool:
    """Return whether the message of ``error`` or one of its notes holds ``text``."""
    # `__str__` may raise anything. A SystemExit of it must not end the program.
    with suppress(BaseException):
        if text in str(error):
            return True
    with suppress(Exception):
        return any(text in note for note in error.__notes__)
    return False


def _without_traceback(error: Exception) -> Exception:
    """Take the tracebacks of ``error`` away, which would lead back to it.

    They lead to every frame below: to the modules, one of which may well hold the error, and
    to whatever else the callers hold.
    """
    for each in _chain(error):
        each.with_traceback(None)
    return error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Give ``error`` and the exceptions that it is chained to or holds, each once."""
    seen, waiting = set[int](), [error]
    while waiting:
        current = waiting.pop()
        if id(current) not in seen:
            seen.add(id(current))
            yield current
            waiting.extend(_linked(current))


def _linked(error: BaseException) -> Iterator[BaseException]:
    if error.__cause__ is not None:
        yield error.__cause__
    if error.__context__ is not None:
        yield error.__context__
    if isinstance(error, BaseExceptionGroup):
        yield from error.exceptions


def _clear_frames(error: BaseException) -> None:
    for frame, _ in traceback.walk_tb(error.__traceback__):
        # Clearing the frame of a suspended generator would close the generator.
        if not frame.f_code.co_flags & _SUSPENDABLE:
            with suppress(RuntimeError):  # It is still running.
                frame.clear()
