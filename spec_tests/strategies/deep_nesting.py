"""Deeply nested values, built and unpacked without recursion."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from spec_tests.strategies.containers import Typed

_Result = TypeVar("_Result")

#: The function that puts a value into a container of each kind.
LEVELS: Mapping[str, Callable[[Any], Any]] = {
    "tuple": lambda part: (part,),
    "list": lambda part: [part],
    "dict": lambda part: {"x": part},
    "OrderedDict": lambda part: OrderedDict(x=part),
    "named tuple": lambda part: Typed(part, None),
}
#: Levels of nesting that the reference supports on an empty stack with Python's default recursion
#: limit of 1000, if it needs one, two or three frames for each level.
ONE_FRAME, TWO_FRAMES, THREE_FRAMES = 850, 425, 260
SCATTERED = {
    "tuple": ONE_FRAME,
    "list": ONE_FRAME,
    "dict": TWO_FRAMES,
    "OrderedDict": TWO_FRAMES,
    "named tuple": ONE_FRAME,
}
GATHERED = {
    "tuple": ONE_FRAME,
    "list": ONE_FRAME,
    "dict": TWO_FRAMES,
    "OrderedDict": THREE_FRAMES,
    "named tuple": THREE_FRAMES,
}


def nest(kinds: list[str], depth: int, value: Any) -> Any:
    """Return ``value`` inside ``depth`` containers, whose kinds alternate."""
    for level in range(depth):
        value = LEVELS[kinds[level % len(kinds)]](value)
    return value


def unnest(value: Any) -> tuple[list[type], Any]:
    """Return the classes of the nested containers, outermost first, and the innermost value."""
    kinds: list[type] = []
    while isinstance(value, tuple | list | dict):
        kinds.append(type(value))
        value = value["x"] if isinstance(value, dict) else value[0]
    return kinds, value


def call_on_empty_stack(function: Callable[[], _Result]) -> _Result:
    """Return the result of ``function``, called in a new thread with an almost empty stack."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()
