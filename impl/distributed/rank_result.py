"""The result of a call on one rank, in a form that can be sent to the other ranks."""

import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from .._errors import format_error, raise_rebuilt
from .serialization import TensorMeta


class Returned(NamedTuple):
    """The result of a rank whose module returned."""

    structure: bytes  # The output without its tensors, pickled.
    metas: list[TensorMeta]  # The metadata of the tensors in the output.


class Idle(NamedTuple):
    """The result of a rank that has no chunk of the inputs."""


class Failed(NamedTuple):
    """The result of a rank that raised an exception."""

    text: str  # The rank, its device, and the original traceback.
    error: bytes  # The exception, pickled; empty if it cannot be pickled.


RankResult = Returned | Idle | Failed


def make_failed(error: BaseException, location: str) -> Failed:
    """Return the result of a rank that raised ``error``. ``location`` has the rank and device."""
    if not isinstance(error, Exception):
        return Failed(f"{type(error).__name__} {location}", b"")
    text = format_error(error, location)
    with suppress(Exception):
        pickled = pickle.dumps(error)
        if type(pickle.loads(pickled)) is type(error):
            return Failed(text, pickled)
    return Failed(text, b"")


def raise_first_error(results: Sequence[RankResult], local_error: BaseException | None) -> None:
    """Raise the exception of the lowest failed rank, if a rank failed.

    All ranks raise the same exception. It is a new exception of the same type if that can be
    pickled and built from a text, else a RuntimeError. ``local_error``, the exception of this
    rank, is raised itself if it is not an Exception, for example a KeyboardInterrupt.
    """
    if local_error is not None and not isinstance(local_error, Exception):
        raise local_error
    first = next((result for result in results if isinstance(result, Failed)), None)
    if first is not None:
        if not first.error:
            raise RuntimeError(first.text)
        raise_rebuilt(pickle.loads(first.error), first.text)
