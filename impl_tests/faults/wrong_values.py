"""Values that are wrong for all or for most arguments.

Some values are left out, because Python's or PyTorch's own functions do not return for them:
``list`` does not end for an infinite iterator, and ``torch.add`` ends the process for an object
whose ``__class__`` is Tensor and for a tensor whose storage is freed.
"""

import array
import asyncio
import collections
import decimal
import fractions
import io
import math
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import numpy as np
import torch

from .wrong_tensors import TENSORS

__all__ = ["VALUES"]

_LONG = 10**5


class _Fields(NamedTuple):
    left: int = 0
    right: int = 1


def _object_with(**members: Any) -> object:
    """Return an object of a new class with the attributes ``members``."""
    return type("Odd", (), members)()


def _closed_generator() -> Iterator[int]:
    generator = (index for index in range(2))
    generator.close()
    return generator


def _cyclic_list() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


def _cyclic_dict() -> dict[str, Any]:
    table: dict[str, Any] = {}
    table["self"] = table
    return table


def _cyclic_tuple() -> tuple[Any, ...]:
    inner: list[Any] = []
    outer = (inner,)
    inner.append(outer)
    return outer


def _closed_coroutine() -> Any:
    coroutine = asyncio.sleep(0)
    coroutine.close()
    return coroutine


_NUMBERS: tuple[Any, ...] = (
    *(True, False, 0, 1, -1, -2, -3, -10, 2, 3, 4, 5, 63, 64, 127, 128, 255, 256, 2**15),
    *(2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, -(2**31), -(2**63), 10**30, -(10**30)),
    *(0.0, 0.5, 1.0, -1.0, 1.5, math.nan, math.inf, -math.inf, 1e308, 5e-324, 1j),
    *(decimal.Decimal(1), fractions.Fraction(1, 2)),
    *(np.int64(1), np.float32(1), np.bool_(True), np.datetime64("2020"), np.str_("sim:0")),
)
_TEXTS: tuple[Any, ...] = (
    *("", "sim", "sim:0", "sim:1", "sim:4", "sim:99", "sim:-1", "SIM:0", " sim:0", "sim:0\0"),
    *("cpu", "cpu:0", "cuda", "cuda:0", "meta", "mps", "xpu:0", "nonsense", "0", "\0"),
    *("\ud800", "x" * _LONG, "sim:" + "9" * 50, "sim:1.5", "sim:0,1"),
    *(b"", b"sim:0", b"\0" * 10),
)
_SEQUENCES: tuple[Any, ...] = (
    *((), [], [0], [0, 1], [1, 0], [0, 0], [0, 1, 2, 3], [0, 99], [None], [None, None]),
    *(["cpu", "cpu"], ["cpu", 0], [-1, 0], [0.0, 1.0], ["0", "1"], [True, False], [[0], [1]]),
    *([math.nan], [2**63, 0], [1] * 1000, ["sim:0", "sim:1"], ["sim:0\0", 1], (0, 1), (None,)),
    *([()], [{}], [object()], range(0), range(2), range(10**4), _Fields()),
)
_TABLES: tuple[Any, ...] = (*({}, {None: None}, {0: 0}, {"x": 1}, {"": ""}, {1.5: "x"}, {(): []}),)
#: Name of a wrong value -> a function that returns it.
_OBJECTS: dict[str, Callable[[], Any]] = {
    "set()": set,
    "{0, 1}": lambda: {0, 1},
    "frozenset": frozenset,
    "deque": lambda: collections.deque([0, 1]),
    "UserList": lambda: collections.UserList([0, 1]),
    "UserDict": lambda: collections.UserDict(x=1),
    "OrderedDict": lambda: collections.OrderedDict(x=1),
    "defaultdict": lambda: collections.defaultdict(list),
    "ChainMap": lambda: collections.ChainMap({"x": 1}),
    "mappingproxy": lambda: types.MappingProxyType({"x": 1}),
    "dict keys": lambda: {0: 0, 1: 1}.keys(),
    "array": lambda: array.array("l", [0, 1]),
    "bytearray": lambda: bytearray(b"sim:0"),
    "memoryview": lambda: memoryview(b"ab"),
    "numpy array": lambda: np.arange(2),
    "numpy objects": lambda: np.array([None, "x"], dtype=object),
    "cyclic list": _cyclic_list,
    "cyclic dict": _cyclic_dict,
    "cyclic tuple": _cyclic_tuple,
    "iterator": lambda: iter([0, 1]),
    "map": lambda: map(int, "01"),
    "zip": lambda: zip([0], [1], strict=True),
    "generator": lambda: (index for index in range(2)),
    "closed generator": _closed_generator,
    "closed coroutine": _closed_coroutine,
    "object()": object,
    "Ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "slice": lambda: slice(0, 2),
    "class": lambda: int,
    "torch.nn.Linear": lambda: torch.nn.Linear,
    "lambda": lambda: lambda *args, **kwargs: None,
    "built-in function": lambda: len,
    "Python module": lambda: math,
    "lock": threading.Lock,
    "file": io.StringIO,
    "exception": lambda: ValueError("x"),
    "exception class": lambda: KeyboardInterrupt,
    "mock": MagicMock,
    "__index__ is 1": lambda: _object_with(__index__=lambda self: 1),
    "torch.device cpu": lambda: torch.device("cpu"),
    "torch.device sim": lambda: torch.device("sim"),
    "torch.device sim:1": lambda: torch.device("sim", 1),
    "torch.device sim:99": lambda: torch.device("sim", 99),
    "torch.device cuda:0": lambda: torch.device("cuda", 0),
    "torch.device meta": lambda: torch.device("meta"),
    "devices 0 and cuda:0": lambda: [torch.device("sim", 0), torch.device("cuda", 0)],
    "torch.dtype": lambda: torch.float32,
    "torch.Size": lambda: torch.Size([2, 3]),
    "torch.Generator": torch.Generator,
    "stream of sim:1": lambda: torch.Stream(device="sim:1"),
    "streams of sim:1": lambda: [torch.Stream(device="sim:1")] * 2,
    "event": lambda: torch.Event(device="sim:0"),
    "storage": lambda: torch.ones(2).untyped_storage(),
}


def _constant(value: Any) -> Callable[[], Any]:
    # Copy a list or dictionary, because a call may change it.
    return lambda: value.copy() if isinstance(value, (list, dict)) else value


#: Name of a wrong value -> a function that returns it.
VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    **{
        f"{type(value).__name__} {ascii(value)[:40]}": _constant(value)
        for value in (*_NUMBERS, *_TEXTS, *_SEQUENCES, *_TABLES)
    },
    **_OBJECTS,
    **TENSORS,
}
