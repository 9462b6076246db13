"""What a rank tells the others about its part of a call, in a form that can be sent."""

import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from .._threads import account, raise_rebuilt
from .serialization import Label

__all__ = ["Failed", "Idle", "Report", "Returned", "failed", "raise_first"]


class Returned(NamedTuple):
    """The module has returned.

    Attributes:
        skeleton: Its output but for the tensors.
        labels: What these are.
    """

    skeleton: bytes
    labels: list[Label]


class Idle(NamedTuple):
    """There was nothing to do."""


class Failed(NamedTuple):
    """Something was raised.

    Attributes:
        text: What is to be shown: where it was raised, and the original traceback.
        error: The exception, pickled; empty where it cannot be.
    """

    text: str
    error: bytes


Report = Returned | Idle | Failed


def failed(error: BaseException, where: str) -> Failed:
    """Report ``error``, which was raised ``where``."""
    if not isinstance(error, Exception):
        return Failed(f"{type(error).__name__} {where}", b"")
    text = account(error, where)
    with suppress(Exception):
        pickled = pickle.dumps(error)
        if type(pickle.loads(pickled)) is type(error):
            return Failed(text, pickled)
    return Failed(text, b"")


def raise_first(reports: Sequence[Report], own: BaseException | None) -> None:
    """Raise the first error that any rank reports, the same on every rank.

    Args:
        reports: Those of all ranks.
        own: What this rank's part raised. If it is no Exception it is raised itself.

    Raises:
        Exception: Of the type of the first error if that can be sent and can be built from a
            text, else a RuntimeError.
    """
    if own is not None and not isinstance(own, Exception):
        raise own
    first = next((each for each in reports if isinstance(each, Failed)), None)
    if first is not None:
        raise_rebuilt(pickle.loads(first.error) if first.error else None, first.text)
