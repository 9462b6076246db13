"""The trigger of a fault: it raises an exception at the chosen place.

A place is a method or a hook, of a module or a container, that calls :meth:`Trigger.reach`.
"""

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = [
    "BACKWARD_PLACES",
    "CONTAINER_PLACES",
    "FORWARD_PLACES",
    "REPLICATE_PLACES",
    "Containers",
    "Trigger",
]

#: Places in the forward of every replica. The replicas on the chosen devices raise.
FORWARD_PLACES = ("forward", "forward hook", "forward pre-hook")
#: Places in the backward of every replica. The replicas on the chosen devices raise.
BACKWARD_PLACES = ("backward", "backward hook", "hook of a gradient")
#: Places in methods that run while replicas are built. One call of ``reach`` raises.
REPLICATE_PLACES = ("__setattr__", "_replicate_for_data_parallel")
#: Places in methods of the caller's lists and dictionaries. One call of ``reach`` raises.
CONTAINER_PLACES = ("container constructor", "iterator")


class Trigger:
    """Raises an exception at a place.

    Args:
        place: A place of one of the tuples above.
        make: Returns a new exception.
        ordinals: The ordinals of the devices whose replicas raise.
        visit: For places outside of forward and backward: the index, from 0, of the call of
            :meth:`reach` that raises.

    Attributes:
        raised: The exceptions that were raised, each with the ordinal of its device, or None.
    """

    def __init__(
        self, place: str, make: Callable[[], BaseException], ordinals: Iterable[int], visit: int
    ) -> None:
        self.place = place
        self._make = make
        self._ordinals = frozenset(ordinals)
        self._visit = visit
        self._visits: Iterator[int] = iter(())
        self._is_armed = False
        self._lock = threading.Lock()
        self.raised: list[tuple[int | None, BaseException]] = []

    @contextmanager
    def arm(self) -> Iterator[None]:
        """Allow exceptions inside a ``with`` block. ``raised`` keeps those of the latest block."""
        self.raised, self._visits = [], itertools.count()
        self._is_armed = True
        try:
            yield
        finally:
            self._is_armed = False

    def reach(self, place: str, device: torch.device | None = None) -> None:
        """Raise an exception if the trigger is armed for this place and this device."""
        if not self._is_armed or place != self.place:
            return
        ordinal = None if device is None else device.index
        if self._is_chosen(ordinal):
            error = self._make()
            self.raised.append((ordinal, error))
            raise error

    def _is_chosen(self, ordinal: int | None) -> bool:
        if self.place in (*FORWARD_PLACES, *BACKWARD_PLACES):
            return ordinal in self._ordinals
        with self._lock:
            return next(self._visits) == self._visit


class Containers:
    """Creates lists and dictionaries whose constructors and iterators may raise an exception.

    Args:
        trigger: The trigger of the exception. The methods of this class raise nothing themselves,
            because they do not call the constructors of the lists and dictionaries.
    """

    def __init__(self, trigger: Trigger) -> None:
        class FaultyList(list[Any]):
            def __init__(self, items: Iterable[Any] = ()) -> None:
                trigger.reach("container constructor")
                super().__init__(items)

            def __iter__(self) -> Iterator[Any]:
                for item in super().__iter__():
                    trigger.reach("iterator")
                    yield item

        class FaultyDict(dict[Any, Any]):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                trigger.reach("container constructor")
                super().__init__(*args, **kwargs)

            def __iter__(self) -> Iterator[Any]:
                for key in super().__iter__():
                    trigger.reach("iterator")
                    yield key

            def items(self) -> Any:
                trigger.reach("iterator")
                return super().items()

        self._list_class, self._dict_class = FaultyList, FaultyDict

    def listed(self, items: Iterable[Any]) -> list[Any]:
        """Return a list of ``items``."""
        created: list[Any] = self._list_class.__new__(self._list_class)
        created.extend(items)
        return created

    def table(self, items: dict[Any, Any]) -> dict[Any, Any]:
        """Return a dictionary of ``items``."""
        created: dict[Any, Any] = self._dict_class.__new__(self._dict_class)
        created.update(items)
        return created
