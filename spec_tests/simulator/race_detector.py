"""Blocks in which accesses that nothing orders are found, and what is said of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from . import native

__all__ = ["Access", "Race", "races"]


@dataclass(frozen=True)
class Access:
    """One end of a race.

    Args:
        operator: The operator's name; ``free`` where memory went back to its allocator.
        device: The ordinal of the device whose stream did it.
        stream: The number of that stream; 0 is the default stream of every device.
        thread: The name of the thread that gave it to the stream.
        place: The innermost line outside torch, or the node whose backward did it.
        writes: Whether it wrote.
    """

    operator: str
    device: int
    stream: int
    thread: str
    place: str
    writes: bool

    @property
    def stream_name(self) -> str:
        """The stream in words."""
        which = f"stream {self.stream}" if self.stream else "the default stream"
        return f"{which} of sim:{self.device}"

    def __str__(self) -> str:
        verb = "writes" if self.writes else "reads"
        return (
            f"{self.operator} {verb} on {self.stream_name}, given by {self.thread},\n"
            f"    {self.place}"
        )


@dataclass(frozen=True)
class Race:
    """Two accesses to the same bytes, at least one a write, that nothing orders.

    Args:
        first: The access that was given to its stream first.
        second: The other one.
        is_free: Whether the second one returns the memory, for others to write to.
        memory: Where the memory is, and how large.
        made: What allocated it, if that happened inside the block.
    """

    first: Access
    second: Access
    is_free: bool
    memory: str
    made: Access | None

    @property
    def remedy(self) -> str:
        """The call that would have ordered them."""
        first, second = self.first.stream_name, self.second.stream_name
        if self.is_free:
            return (
                f"before the last reference goes, tensor.record_stream({first}); "
                f"or let {second} wait for {first} (wait_stream, wait_event), or synchronize"
            )
        return (
            f"let {second} wait for {first} between the two "
            f"(wait_stream, wait_event), or synchronize {first}"
        )

    def __str__(self) -> str:
        made = f", allocated by {self.made.operator}\n    {self.made.place}" if self.made else ""
        return (
            f"race on {self.memory}{made}\n"
            f"  first   {self.first}\n"
            f"  second  {self.second}\n"
            f"  remedy  {self.remedy}"
        )


@contextmanager
def races(*, late: int | None = None) -> Iterator[list[Race]]:
    """Follow every access to memory of the devices inside the block.

    Args:
        late: A seed, to make copies that the host does not wait for as late as they may be made:
            when work that is ordered after them asks. Who does not wait then reads NaN, or what
            was there before. 0 holds every copy back, another seed three in four of its choice.

    Yields:
        A list that is filled when the block ends, one entry for each pair of places that race.
        It stays empty where nothing raced. What threads do inside the block belongs to it,
        backward passes too. Blocks nest: a race belongs to the innermost one. Work that was given
        to the devices before the outermost block counts as waited for.
    """
    extension = native.extension()
    found: list[Race] = []
    extension.open_races(late)
    try:
        yield found
    finally:
        found += map(_race, extension.close_races())


def _race(raw: native.RawRace) -> Race:
    first, second, is_free, device, nbytes, made = raw
    where = f"sim:{device}" if device >= 0 else "the host (pinned)"
    return Race(
        Access(*first),
        Access(*second),
        is_free,
        f"{nbytes} bytes of {where}",
        Access(*made) if made is not None else None,
    )
