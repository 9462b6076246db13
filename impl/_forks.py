"""Handlers that run in forked children."""

import os
from collections.abc import Callable


def register_fork_handler(handler: Callable[[], None]) -> None:
    """Register ``handler``, which runs in every forked child. A child has only one thread."""
    if hasattr(os, "register_at_fork"):  # Windows has no forks.
        os.register_at_fork(after_in_child=handler)
