"""The streams on which the stand-ins for scatter make their copies."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import torch

from ._devices import accelerator_type


def as_streams(streams: object) -> Sequence[torch.Stream | None]:
    """Return ``streams`` as a sequence. None becomes an empty sequence.

    Raises:
        RuntimeError: If ``streams`` is not a sequence, or a member is neither a stream nor None.
    """
    if streams is None:
        return ()
    if not isinstance(streams, Sequence):
        raise RuntimeError("Expected a sequence in THPUtils_PySequence_to_CUDAStreamList")
    if not all(stream is None or isinstance(stream, torch.Stream) for stream in streams):
        raise RuntimeError(
            "Unknown data type found in stream list. "
            f"Need torch.{accelerator_type()}.Stream or None"
        )
    return streams


def stream_at(
    streams: Sequence[torch.Stream | None], index: int, ordinal: int
) -> torch.Stream | None:
    """Return the stream for the chunk at ``index``, or None if there is no stream for it.

    Raises:
        RuntimeError: If the stream belongs to another device than ``ordinal``.
    """
    stream = streams[index] if index < len(streams) else None
    if stream is not None and stream.device.index != ordinal:
        # The real primitive prints this ordinal as a character, not as a digit.
        raise RuntimeError(
            f"Expected the device associated with the stream at index {index} "
            f"(was {chr(stream.device.index)}) to match the device supplied at that index "
            f"(expected {ordinal})"
        )
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
