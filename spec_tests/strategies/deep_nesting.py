"""Deeply nested containers, built and unpacked without recursion."""

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from spec_tests.strategies.containers import Typed

#: For each kind: the function that puts a value into a container of this kind.
LEVELS: Mapping[str, Callable[[Any], Any]] = {
    "tuple": lambda value: (value,),
    "list": lambda value: [value],
    "dict": lambda value: {"x": value},
    "OrderedDict": lambda value: OrderedDict(x=value),
    "named tuple": lambda value: Typed(value, None),
}
#: Levels of nesting that fit into Python's default recursion limit of 1000, with one, two or three
#: stack frames for each level.
ONE_FRAME, TWO_FRAMES, THREE_FRAMES = 850, 425, 260
#: `nest` multiplies every depth by this factor. The recursion limit of Python 3.12 also counts
#: calls from C: torch.nn.parallel supports 748 levels on Python 3.12, and 990 on other versions.
_DEPTH_FACTOR = 0.75 if sys.version_info[:2] == (3, 12) else 1.0
#: For each kind of container: the levels of nesting that scatter of the reference supports.
SCATTERED = {
    "tuple": ONE_FRAME,
    "list": ONE_FRAME,
    "dict": TWO_FRAMES,
    "OrderedDict": TWO_FRAMES,
    "named tuple": ONE_FRAME,
}
#: For each kind of container: the levels of nesting that gather of the reference supports.
GATHERED = {
    "tuple": ONE_FRAME,
    "list": ONE_FRAME,
    "dict": TWO_FRAMES,
    "OrderedDict": THREE_FRAMES,
    "named tuple": THREE_FRAMES,
}


def nest(kinds: list[str], depth: int, value: Any) -> Any:
    """Return ``value`` inside nested containers, whose kinds cycle through ``kinds``.

    There are ``depth`` containers, but only 3/4 of ``depth`` on Python 3.12.
    """
    for level in range(int(depth * _DEPTH_FACTOR)):
        value = LEVELS[kinds[level % len(kinds)]](value)
    return value


def unnest(value: Any) -> tuple[list[type], Any]:
    """Return the classes of the nested containers, outermost first, and the innermost value."""
    kinds: list[type] = []
    while isinstance(value, tuple | list | dict):
        kinds.append(type(value))
        value = value["x"] if isinstance(value, dict) else value[0]
    return kinds, value
