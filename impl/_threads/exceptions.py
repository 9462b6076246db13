"""Capture of exceptions in worker threads, and raising them in the caller's thread."""

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Never

_SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class CapturedError:
    """The result of :func:`capture` if the function raised an exception."""

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error = error

    @property
    def is_interrupt(self) -> bool:
        """Whether the exception is no Exception, for example a KeyboardInterrupt."""
        return not isinstance(self._error, Exception)

    def pop(self) -> BaseException:
        """Return the exception and drop it. A second call raises AttributeError.

        A reference from a frame of its traceback would be a cycle.
        """
        error = self._error
        del self._error
        return error


class _KeyErrorMessage(str):
    """A text without quotes and escapes in ``str(KeyError(text))``, which is its ``repr``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def capture(function: Callable[..., Any], /, *args: Any) -> Any:
    """Call ``function(*args)``.

    Returns:
        The result of the function, or a :class:`CapturedError` with its exception. The local
        variables of all frames in the traceback are cleared, so that the exception keeps no
        tensor alive and is in no reference cycle.
    """
    try:
        return function(*args)
    except BaseException as error:
        # The traceback refers to this frame, which must not refer to the arguments.
        del function, args
        return _capture_error(error)


def _capture_error(error: BaseException) -> CapturedError:
    trace = error.__traceback__
    with suppress(Exception):
        for each in _chained_errors(error):
            _clear_frames(each)
    # Without the first frame, which is that of `capture`.
    return CapturedError(error.with_traceback(trace and trace.tb_next))


def reraise(error: BaseException, where: str) -> Never:
    """Raise the exception of a replica in this thread.

    Args:
        error: The replica's exception, from :meth:`CapturedError.pop`.
        where: The replica and its device: ``"in replica 1 on device 1"``.

    Raises:
        Exception: A new exception of the type of ``error`` if that can be built from a text,
            else a RuntimeError. Its message contains ``where`` and the original traceback; if
            ``__str__`` does not return the message, a note contains them. Its cause is
            ``error`` without its traceback.
        BaseException: ``error`` itself, with ``where`` in a note, if it is no Exception.
    """
    try:
        if isinstance(error, Exception):
            raise _rebuild(error, format_error(error, where)) from _without_traceback(error)
        with suppress(Exception):
            error.add_note(f"Raised {where}.")
        raise error
    finally:
        del error  # Its traceback refers to this frame: a reference would be a cycle.


def raise_rebuilt(error: Exception | None, text: str) -> Never:
    """Raise the exception of another process in this process.

    Args:
        error: The exception; None if it could not be sent.
        text: The result of :func:`format_error`.

    Raises:
        Exception: A new exception of the type of ``error`` if that can be built from a text,
            else a RuntimeError. Its message or a note contains ``text``; its cause is
            ``error``.
    """
    if error is None:
        raise RuntimeError(text)
    cause = _without_traceback(error)
    raise _rebuild(error, text) from cause


def format_error(error: Exception, where: str) -> str:
    """Return the type of ``error``, its place ``where``, and its traceback, as text."""
    return f"Caught {type(error).__name__} {where}.\nOriginal {_format_traceback(error)}"


def _format_traceback(error: BaseException, *outer: BaseException) -> str:
    """Format ``error`` with its causes, unless its message already contains the cause.

    The error of a nested ``parallel_apply`` contains the text of its cause. With the cause
    appended, the text would double at each level. ``outer`` are the errors caused by ``error``.
    """
    cause, seen = error.__cause__, (*outer, error)
    has_cause_text = False
    if cause is not None and all(cause is not other for other in seen):
        has_cause_text = _has_text(error, _format_traceback(cause, *seen))
    with suppress(Exception):
        return "".join(traceback.format_exception(error, chain=not has_cause_text))
    lines = "".join(traceback.format_tb(error.__traceback__))
    return f"Traceback (most recent call last):\n{lines}{type(error).__name__}\n"


def _rebuild(error: Exception, text: str) -> Exception:
    """Return an exception of the type of ``error`` that shows ``text``, else a RuntimeError."""
    without_text = []
    for candidate in _build_candidates(error, text):
        if _has_text(candidate, text):
            return candidate
        without_text.append(candidate)
    for candidate in without_text:
        with suppress(Exception):
            candidate.add_note(text)
            return candidate
    return RuntimeError(text)


def _build_candidates(error: Exception, text: str) -> Iterator[Exception]:
    """Yield new exceptions of the type of ``error``, built from ``text``."""
    argument = _KeyErrorMessage(text) if isinstance(error, KeyError) else text
    for construct in _find_constructors(error):
        with suppress(Exception):
            candidate = construct(argument)
            # A class may return an object of another class, or a singleton.
            if isinstance(candidate, type(error)) and candidate is not error:
                if not _has_text(candidate, text):
                    with suppress(Exception):
                        candidate.args = (argument,)
                yield candidate


def _find_constructors(error: Exception) -> Iterator[Callable[[str], object]]:
    kind: Any = type(error)
    if _has_message_attribute(kind):
        yield lambda text: kind(message=text)
    yield kind
    if isinstance(error, ExceptionGroup):
        yield lambda text: kind(text, error.exceptions)


def _has_message_attribute(kind: type[Exception]) -> bool:
    with suppress(Exception):
        return bool(getattr(kind, "message", None))
    return False


def _has_text(error: BaseException, text: str) -> bool:
    """Return whether the message of ``error`` or one of its notes contains ``text``."""
    # `__str__` may raise anything, even SystemExit, which must not end the program.
    with suppress(BaseException):
        if text in str(error):
            return True
    with suppress(Exception):
        return any(text in note for note in error.__notes__)
    return False


def _without_traceback(error: Exception) -> Exception:
    """Remove the tracebacks of ``error`` and of its chained exceptions.

    Tracebacks refer to all frames and so to the modules, one of which may refer to the error.
    """
    for each in _chained_errors(error):
        each.with_traceback(None)
    return error


def _chained_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error``, its causes and contexts, and the members of groups, each once."""
    seen = set[int]()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        waiting += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions


def _clear_frames(error: BaseException) -> None:
    for frame, _ in traceback.walk_tb(error.__traceback__):
        # Clearing the frame of a suspended generator would close the generator.
        if not frame.f_code.co_flags & _SUSPENDABLE:
            with suppress(RuntimeError):  # The frame is still running.
                frame.clear()
