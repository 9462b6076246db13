"""Exchange of results between the ranks. An error of one rank is raised on every rank."""

import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from .._errors import CapturedError, capture, format_error, raise_rebuilt
from .process_group import Communicator


class _Failed(NamedTuple):
    """The result of a rank that raised an exception."""

    text: str  # The rank, its device, and the original traceback.
    error: bytes  # The exception, pickled; empty if it cannot be pickled.


def exchange(communicator: Communicator, compute: Callable[[], Any], location: str) -> list[Any]:
    """Return the results of ``compute`` on all ranks, in rank order. They are pickled.

    If a rank failed, all ranks raise the exception of the lowest failed rank. It is a new
    exception of the same type if that can be pickled and built from a text, else a RuntimeError.
    ``location`` says in its text where the exception occurred. An exception of this rank that is
    not an Exception, for example a KeyboardInterrupt, is raised itself.
    """
    outcome = capture(compute)
    error = outcome.pop() if isinstance(outcome, CapturedError) else None
    results = communicator.all_gather_object(
        outcome if error is None else _make_failed(error, location)
    )
    if error is not None and not isinstance(error, Exception):
        raise error
    del error  # The exception that is raised would refer to this frame.
    _raise_first_error(results)
    return results


def _make_failed(error: BaseException, location: str) -> _Failed:
    if not isinstance(error, Exception):
        return _Failed(f"{type(error).__name__} {location}", b"")
    text = format_error(error, location)
    with suppress(Exception):
        pickled = pickle.dumps(error)
        if type(pickle.loads(pickled)) is type(error):
            return _Failed(text, pickled)
    return _Failed(text, b"")


def _raise_first_error(results: Sequence[Any]) -> None:
    first = next((result for result in results if isinstance(result, _Failed)), None)
    if first is not None:
        if not first.error:
            raise RuntimeError(first.text)
        raise_rebuilt(pickle.loads(first.error), first.text)
