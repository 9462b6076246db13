"""Exceptions that are captured in worker threads and raised in the caller's thread."""

import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Never

#: Flags of the code objects whose frames may be suspended: generators and coroutines.
_SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
#: The words before the traceback in the text of :func:`format_error`.
_MARK = "\nOriginal "


class CapturedError:
    """The result of :func:`capture` if the function raised an exception."""

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error = error

    @property
    def is_interrupt(self) -> bool:
        """Whether the exception is not an Exception, for example a KeyboardInterrupt."""
        return not isinstance(self._error, Exception)

    def pop(self) -> BaseException:
        """Return the exception in the first call. A second call raises AttributeError."""
        # A frame in the traceback of the exception may refer to this object: avoid a cycle.
        error = self._error
        del self._error
        return error


class _KeyErrorMessage(str):
    """A text that a KeyError shows without quotes and escapes, unlike other strings."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def capture(function: Callable[..., Any], /, *args: Any) -> Any:
    """Return ``function(*args)``, or a :class:`CapturedError` without local variables."""
    try:
        return function(*args)
    except BaseException as error:
        # The traceback refers to this frame, so this frame must not keep the arguments alive.
        del function, args
        return _capture_error(error)


def _capture_error(error: BaseException) -> CapturedError:
    trace = error.__traceback__
    for each in _chained_errors(error):
        _clear_frames(each)
    # Remove the first frame, which is the frame of `capture`.
    return CapturedError(error.with_traceback(trace and trace.tb_next))


def reraise(error: BaseException, location: str) -> Never:
    """Raise the exception of a replica in this thread.

    Args:
        error: The replica's exception.
        location: The replica and its device: ``"in replica 1 on device 1"``.

    Raises:
        Exception: A new exception of the type of ``error`` if this type can be built from a text,
            else a RuntimeError. The text contains ``location`` and the original traceback. It is
            in the message of the new exception, or in a note if ``__str__`` does not return the
            message. The cause of the new exception is ``error`` without the traceback.
        BaseException: ``error`` itself, with ``location`` in a note, if it is not an Exception.
    """
    try:
        if isinstance(error, Exception):
            raise _rebuild(error, format_error(error, location)) from _without_traceback(error)
        error.add_note(f"Raised {location}.")
        raise error
    finally:
        # The traceback of `error` refers to this frame, so `error` would be in a reference cycle.
        del error


def raise_rebuilt(error: Exception, text: str) -> Never:
    """Raise an exception of another process, as :func:`reraise` does, with the text ``text``."""
    raise _rebuild(error, text) from _without_traceback(error)


def format_error(error: Exception, location: str) -> str:
    """Return a text with the type of ``error``, its ``location``, and its traceback."""
    return f"Caught {type(error).__name__} {location}.{_MARK}{_format_traceback(error)}"


def _format_traceback(error: BaseException, *outer: BaseException) -> str:
    """Format ``error`` and its causes. Omit causes that the text of ``error`` contains.

    With the text of its cause, that of a nested ``parallel_apply`` would double at each level.
    ``outer`` are the errors of which ``error`` is a cause.
    """
    cause, seen = error.__cause__, (*outer, error)
    has_cause_text = False
    # A chain of causes may be longer than the recursion limit. Only the errors of nested calls are
    # followed.
    if cause is not None and all(cause is not other for other in seen) and _has_text(error, _MARK):
        has_cause_text = _has_text(error, _format_traceback(cause, *seen))
    return "".join(traceback.format_exception(error, chain=not has_cause_text))


def _rebuild(error: Exception, text: str) -> Exception:
    """Return an exception of the type of ``error`` with ``text``, or else a RuntimeError."""
    without_text: list[Exception] = []
    for candidate in _build_candidates(error, text):
        if _has_text(candidate, text):
            return candidate
        without_text.append(candidate)
    if not without_text:
        return RuntimeError(text)
    without_text[0].add_note(text)
    return without_text[0]


def _build_candidates(error: Exception, text: str) -> Iterator[Exception]:
    """Yield new exceptions of the type of ``error``. Some may lack ``text`` in their message."""
    argument = _KeyErrorMessage(text) if isinstance(error, KeyError) else text
    for construct in _find_constructors(error):
        with suppress(Exception):
            candidate = construct(argument)
            # The class may return an object of another class, or `error` itself if it is a
            # singleton.
            if isinstance(candidate, type(error)) and candidate is not error:
                if not _has_text(candidate, text):
                    with suppress(Exception):
                        candidate.args = (argument,)
                yield candidate


def _find_constructors(error: Exception) -> Iterator[Callable[[str], object]]:
    """Yield functions that may create an exception of the type of ``error`` from a text."""
    error_class: Any = type(error)
    if getattr(error_class, "message", None):
        yield lambda text: error_class(message=text)
    yield error_class
    if isinstance(error, ExceptionGroup):
        yield lambda text: error_class(text, error.exceptions)


def _has_text(error: BaseException, text: str) -> bool:
    """Return whether the message of ``error`` or one of its notes contains ``text``."""
    # `__str__` may raise any exception, even SystemExit, which must not end the program.
    with suppress(BaseException):
        if text in str(error):
            return True
    with suppress(Exception):
        return any(text in note for note in error.__notes__)
    return False


def _without_traceback(error: Exception) -> Exception:
    """Remove the tracebacks of ``error`` and of its chained exceptions, and return ``error``.

    Tracebacks refer to frames, and frames refer to modules. If a module refers to the error, the
    traceback would complete a reference cycle.
    """
    for each in _chained_errors(error):
        each.with_traceback(None)
    return error


def _chained_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` and all its causes, contexts and group members, each exception once."""
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
    """Clear the local variables of the frames in the traceback of ``error``."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        # Clearing the frame of a suspended generator would close the generator.
        if not frame.f_code.co_flags & _SUSPENDABLE:
            with suppress(RuntimeError):  # The frame is still running.
                frame.clear()
