"""The way through nested values, level by level, at any depth.

Going down costs no call of Python's: a value may be nested as deep as the interpreter's recursion
limit allows a function that calls itself once a level, however deep the caller is already.
"""

import sys
from collections.abc import Iterator, Sized

__all__ = ["Level", "traverse"]

#: Looks at the parts of one container in order. It gives the level of each part that has parts of
#: its own, and goes on when all below that part has been looked at.
Level = Iterator["Level"]


def traverse(top: Level | None, uncounted: Sized = ()) -> None:
    """Run through ``top`` and all the levels below it; None has none.

    Args:
        top: The uppermost level.
        uncounted: At any time it has as many members as levels are open that do not count, since
            they cannot lead back to themselves.

    Raises:
        RecursionError: There are more levels than the recursion limit: the value is nested too
            deep, or holds itself.
    """
    limit = sys.getrecursionlimit()
    levels = [] if top is None else [top]
    while levels:
        below = next(levels[-1], None)
        if below is None:
            levels.pop()
        elif len(levels) - len(uncounted) < limit:
            levels.append(below)
        else:
            raise RecursionError(f"a value is nested more than {limit} levels deep")
