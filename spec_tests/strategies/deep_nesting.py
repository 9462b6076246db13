"""Values nested many levels deep, made and taken apart without recursion."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from spec_tests.strategies.containers import Typed

_Result = TypeVar("_Result")

#: One level round a value, by kind of container.
LEVELS: Mapping[str, Callable[[Any], Any]] = {
    "tuple": lambda part: (part,),
    "list": lambda part: [part],
    "dict": lambda part: {"x": part},
    "OrderedDict": lambda part: OrderedDict(x=part),
    "named tuple": lambda part: Typed(part, None),
}
#: Levels that the reference manages from the bottom of the stack at Python's own recursion limit
#: of 1000, with room to spare: it calls itself once for each, or twice, or three times.
ONCE, TWICE, THRICE = 850, 425, 260
SCATTERED = {
    "tuple": ONCE,
    "list": ONCE,
    "dict": TWICE,
    "OrderedDict": TWICE,
    "named tuple": ONCE,
}
GATHERED = {
    "tuple": ONCE,
    "list": ONCE,
    "dict": TWICE,
    "OrderedDict": THRICE,
    "named tuple": THRICE,
}


def nest(kinds: list[str], depth: int, value: Any) -> Any:
    """``value`` inside ``depth`` containers of ``kinds`` by turns."""
    for level in range(depth):
        value = LEVELS[kinds[level % len(kinds)]](value)
    return value


def unnest(value: Any) -> tuple[list[type], Any]:
    """The classes of the containers round a value, outermost first, and the value."""
    kinds: list[type] = []
    while isinstance(value, tuple | list | dict):
        kinds.append(type(value))
        value = value["x"] if isinstance(value, dict) else value[0]
    return kinds, value


def call_on_empty_stack(function: Callable[[], _Result]) -> _Result:
    """What ``function`` gives on a stack of its own, of which next to nothing is used."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()
