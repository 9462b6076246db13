"""The result of a call on one rank, which can be pickled and sent to the other ranks."""

import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from .._threads import format_error, raise_rebuilt
from .serialization import TensorMeta


class Returned(NamedTuple):
    """The result of a rank whose module returned.

    Attributes:
        structure: The output without its tensors, pickled.
        metas: The metadata of its tensors.
    """

    structure: bytes
    metas: list[TensorMeta]


class Idle(NamedTuple):
    """The result of a rank without rows."""


class Failed(NamedTuple):
    """The result of a rank that raised.

    Attributes:
        text: The place of the error, and the original traceback.
        error: The exception, pickled; empty if it cannot be pickled.
    """

    text: str
    error: bytes


RankResult = Returned | Idle | Failed


def make_failed(error: BaseException, where: str) -> Failed:
    """Return the result of a rank that raised ``error``; ``where`` is the rank and its device."""
    if not isinstance(error, Exception):
        return Failed(f"{type(error).__name__} {where}", b"")
    text = format_error(error, where)
    with suppress(Exception):
        pickled = pickle.dumps(error)
        if type(pickle.loads(pickled)) is type(error):
            return Failed(text, pickled)
    return Failed(text, b"")


def raise_first_error(results: Sequence[RankResult], local_error: BaseException | None) -> None:
    """Raise the error of the first rank that failed, the same on every rank.

    Args:
        results: The results of all ranks.
        local_error: The exception of this rank, if any. It is raised if it is no Exception.

    Raises:
        Exception: Of the type of the first error if that can be pickled and built from a text,
            else a RuntimeError.
    """
    if local_error is not None and not isinstance(local_error, Exception):
        raise local_error
    first = next((result for result in results if isinstance(result, Failed)), None)
    if first is not None:
        raise_rebuilt(pickle.loads(first.error) if first.error else None, first.text)
