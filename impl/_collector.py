"""Python's garbage collector, which is in the way while much is built that stays."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["use_paused_collector"]


@contextmanager
def use_paused_collector() -> Iterator[None]:
    """Keep the collector from running inside a ``with`` block.

    It runs whenever enough objects have been made, and looks at all that there are. Where a
    block makes a hundred thousand and drops none, it would run in vain many times, and the last
    time over the whole heap. The setting is the process's: other threads' garbage waits, too.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
