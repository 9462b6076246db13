"""A call in a thread, which several test files make."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def call_in_thread(function: Callable[..., T], *args: Any) -> T:
    """Return ``function(*args)``, called in a new thread, whose stack is almost empty."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result()
