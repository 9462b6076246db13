"""The streams on which the stand-ins for scatter make their copies."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import torch

from ._arguments import is_sequence
from ._devices import accelerator_type


def as_streams(streams: Any) -> list[torch.Stream | None]:
    """Return ``streams`` as a list. None becomes an empty list.

    Raises:
        RuntimeError: If ``streams`` is not a sequence, or is a 0-dim array, for which the real
            primitive is undefined; if a member is neither a stream of the accelerator nor None.
    """
    if streams is None:
        return []
    if not is_sequence(streams) or getattr(streams, "ndim", 1) == 0:
        raise RuntimeError("Expected a sequence in THPUtils_PySequence_to_CUDAStreamList")
    return [_as_stream(stream) for stream in streams]


def _as_stream(stream: object) -> torch.Stream | None:
    if not (stream is None or isinstance(stream, torch.Stream)):
        raise RuntimeError(
            "Unknown data type found in stream list. "
            f"Need torch.{accelerator_type()}.Stream or None"
        )
    if stream is not None and stream.device.type != accelerator_type():
        raise RuntimeError(
            f"Expected stream_.device_type() == DeviceType::{accelerator_type().upper()} "
            "to be true, but got false.  (Could this error message be improved?  If so, please "
            "report an enhancement request to PyTorch.)"
        )
    return stream


def stream_at(
    streams: Sequence[torch.Stream | None], index: int, ordinal: int
) -> torch.Stream | None:
    """Return the stream for the chunk at ``index``, or None if there is no stream for it.

    Raises:
        RuntimeError: If the stream belongs to another device than ``ordinal``.
    """
    stream = streams[index] if index < len(streams) else None
    if stream is not None and stream.device.index != ordinal:
        text = (
            f"Expected the device associated with the stream at index {index} "
            f"(was {chr(stream.device.index)}) to match the device supplied at that index "
            f"(expected {ordinal})"
        )
        # The real primitive prints the ordinal as a character. The character 0 ends the text.
        raise RuntimeError(text.split("\0", 1)[0])
    return stream


class StreamGuard:
    """A context manager that restores the current stream and device at the end of its block."""

    def __init__(self) -> None:
        self._before: tuple[int, torch.Stream] | None = None

    def set(self, stream: torch.Stream | None) -> None:
        """Make ``stream`` and its device current until the next ``set``, or until ``__exit__``.

        None changes nothing: the previous stream stays current.
        """
        if stream is None:
            return
        self._restore()
        ordinal = torch.accelerator.current_device_index()
        self._before = (ordinal, torch.accelerator.current_stream(stream.device))
        torch.accelerator.set_stream(stream)

    def _restore(self) -> None:
        if self._before is not None:
            ordinal, stream = self._before
            torch.accelerator.set_stream(stream)
            torch.accelerator.set_device_index(ordinal)
            self._before = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()
