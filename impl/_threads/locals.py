"""What the running thread has put into ``threading.local`` objects.

CPython keeps an entry for each of them in the thread's own dictionary, which
``PyThreadState_GetDict`` of the public C API gives: what the thread has put there lives as long as
the entry. Since 3.13 that dictionary is empty: nothing can be done there, :func:`can_be_fresh`
says so, but :func:`count_locals` still tells whether a thread has put something anywhere. Where
there is no CPython not even that can be told.
"""

import ctypes
import gc
import math
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import getweakrefcount

__all__ = ["can_be_fresh", "count_locals", "drop_locals", "use_fresh_locals"]


def can_be_fresh() -> bool:
    """Tell whether :func:`use_fresh_locals` and :func:`drop_locals` do anything here."""
    return _Entry is not None


@contextmanager
def use_fresh_locals() -> Iterator[Callable[[], None]]:
    """Hold nothing in a ``with`` block, as a new thread does.

    What the block leaves goes when it ends, and what was there before is there again.

    Returns:
        A context whose value does what :func:`drop_locals` does, a little faster.
    """
    entries = _entries()
    kept = entries.copy()
    others = {key: kept.pop(key) for key in _keys_of_others(kept)}
    try:
        entries.clear()
        entries.update(others)
        yield partial(_drop, entries)
    finally:
        try:
            _drop(entries)
        finally:
            # In one call, which an interrupt cannot divide: between two, entries could get lost.
            entries.update(kept)
            _forget_the_dead(entries, kept)


def drop_locals() -> None:
    """Let go of everything, as a thread does that ends."""
    _drop(_entries())


def count_locals() -> float:
    """Give a number that grows with each object in which the running thread holds something.

    Returns:
        Any number; one that is unequal to itself where it cannot be told.
    """
    return _count()


def _keys_of_others(entries: dict[Any, Any]) -> list[Any]:
    # The dictionary is there for every extension in C; what is not of a `threading.local` stays.
    return [key for key, entry in entries.items() if type(entry) is not _Entry]


def _drop(entries: dict[Any, Any]) -> None:
    # A copy, which is made in one step: another thread that frees a `threading.local` takes this
    # thread's entry away, also in the middle of a loop.
    for key, entry in entries.copy().items():
        if type(entry) is _Entry:
            entries.pop(key, None)


def _forget_the_dead(entries: dict[Any, Any], kept: dict[Any, Any]) -> None:
    """Take those of ``kept`` away whose objects have ended meanwhile.

    An object refers weakly to its entries. Their key is its address: the next object there must
    not find them.
    """
    if 0 in map(getweakrefcount, kept.values()):
        for key, entry in kept.items():
            if not getweakrefcount(entry):
                entries.pop(key, None)


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """Give a function of Python's C API; where there is no such API, one that gives None."""
    try:
        return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))
    except AttributeError:  # Not CPython.
        return lambda *_: None


# An address, not an object: the function only lends the dictionary, and ctypes would release it,
# as it does with every object that a function in C returns.
_address = _function("PyThreadState_GetDict", ctypes.c_void_p)
_at_address = _function("Py_NewRef", ctypes.py_object, ctypes.c_void_p)


def _entries() -> dict[Any, Any]:
    """Give the running thread's own dictionary."""
    address = _address()
    return {} if address is None else _at_address(address)


def _type_of_entries() -> type | None:
    before = _entries().copy()
    local = threading.local()
    local.held = True
    new = [entry for key, entry in _entries().items() if key not in before]
    return type(new[0]) if new else None


def _count_entries() -> float:
    return sum(type(entry) is _Entry for entry in _entries().copy().values())


class _Probe(threading.local):
    """Knows the key under which every ``threading.local`` keeps what is of this thread."""

    def __init__(self) -> None:
        # Looked for in an object that no other thread holds anything in: to look into one that
        # all use is to hold all their keys for a moment, which they would count.
        own = threading.local()
        own.held = True
        self.key = _key_of(own)


def _key_of(local: threading.local) -> object:
    # One dictionary in the object has what is of each thread, by the thread's key.
    for found in gc.get_referents(local):
        if type(found) is dict:
            for key, held in found.copy().items():
                if held is local.__dict__:
                    return key
    return None


def _count_references() -> float:
    # Each object that holds something of this thread refers to the thread's one key.
    return sys.getrefcount(_probe.key)


def _counts(count: Callable[[], float]) -> bool:
    """Tell whether ``count`` works here, by trying it out."""
    before = count()
    local = threading.local()
    local.held = True
    return count() > before


def _not_told() -> float:
    return math.nan


_Entry = _type_of_entries()
_probe = _Probe()
# On free-threaded Python each thread that looks for its key would stop all others meanwhile, which
# has been seen to hang. There threads end with their work, and who lets go of what they have made
# frees it.
_WAYS = () if sysconfig.get_config_var("Py_GIL_DISABLED") else (_count_entries, _count_references)
_count = next(filter(_counts, _WAYS), _not_told)
