"""Discards what a process writes to stdout and stderr, also from C++."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_output"]

#: The file descriptors of stdout and stderr.
_OUTPUTS = (1, 2)


@contextmanager
def without_output() -> Iterator[None]:
    """Discard what this process writes: a back end may print the source of a failing kernel."""
    sys.stdout.flush()
    saved = [os.dup(stream) for stream in _OUTPUTS]
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in _OUTPUTS:
            os.dup2(null, stream)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for stream, copy in zip(_OUTPUTS, saved, strict=True):
            os.dup2(copy, stream)
            os.close(copy)
        os.close(null)
