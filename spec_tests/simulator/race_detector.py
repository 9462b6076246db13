"""The race detector: a context manager that finds races, and the classes that describe them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from . import native


@dataclass(frozen=True)
class Access:
    """One of the two accesses of a race.

    Args:
        operator: The name of the operator; ``free`` if the memory was freed.
        device: The ordinal of the device whose stream ran the operator.
        stream: The id of that stream; 0 is the default stream of every device.
        thread: The name of the thread that enqueued the operator.
        location: The innermost line outside torch, or the autograd node whose backward ran.
        writes: Whether the access writes.
    """

    operator: str
    device: int
    stream: int
    thread: str
    location: str
    writes: bool

    @property
    def stream_name(self) -> str:
        """The stream and its device as text."""
        name = f"stream {self.stream}" if self.stream else "the default stream"
        return f"{name} of sim:{self.device}"

    def __str__(self) -> str:
        verb = "writes" if self.writes else "reads"
        return (
            f"{self.operator} {verb} on {self.stream_name}, enqueued by {self.thread},\n"
            f"    {self.location}"
        )


@dataclass(frozen=True)
class Race:
    """Two unordered accesses to the same bytes, at least one of them a write.

    Args:
        first: The access that was enqueued first.
        second: The access that was enqueued second.
        is_free: Whether the second access frees the memory, which other tensors may then use.
        memory: Size and device of the memory, as text.
        allocation: The operation that allocated the memory, if it ran inside the block.
    """

    first: Access
    second: Access
    is_free: bool
    memory: str
    allocation: Access | None

    @property
    def remedy(self) -> str:
        """The call that orders the two accesses, as text."""
        first, second = self.first.stream_name, self.second.stream_name
        if self.is_free:
            return (
                f"call tensor.record_stream({first}) before the last reference is deleted; "
                f"or let {second} wait for {first} (wait_stream, wait_event), or synchronize"
            )
        return (
            f"let {second} wait for {first} between the two "
            f"(wait_stream, wait_event), or synchronize {first}"
        )

    def __str__(self) -> str:
        allocation = ""
        if self.allocation:
            allocation = (
                f", allocated by {self.allocation.operator}\n    {self.allocation.location}"
            )
        return (
            f"race on {self.memory}{allocation}\n"
            f"  first   {self.first}\n"
            f"  second  {self.second}\n"
            f"  remedy  {self.remedy}"
        )


@contextmanager
def races(*, late_copies: int | None = None) -> Iterator[list[Race]]:
    """Record every access to memory of the devices inside the block, and find races.

    Args:
        late_copies: A seed that defers copies for which the host does not wait. A deferred copy
            runs when work that is ordered after it runs. A reader that does not wait then reads
            NaN or the previous contents. Seed 0 defers every copy; any other seed defers three
            in four copies at random.

    Yields:
        A list, which is empty until the block ends. Then it has at most 50 races: one for each
        pair of operators and source lines that race. The work of all threads inside the block is
        recorded, including backward passes. Blocks nest: a race is added to the innermost block.
        Work that was enqueued before the outermost block counts as finished.
    """
    extension = native.extension()
    found: list[Race] = []
    extension.open_races(late_copies)
    try:
        yield found
    finally:
        found += map(_make_race, extension.close_races())


def _make_race(raw_race: native.RawRace) -> Race:
    first, second, is_free, device, nbytes, allocation = raw_race
    memory = f"sim:{device}" if device >= 0 else "the host (pinned)"
    return Race(
        Access(*first),
        Access(*second),
        is_free,
        f"{nbytes} bytes of {memory}",
        Access(*allocation) if allocation is not None else None,
    )
