"""The classes in ``batch_dims.toml``: some of their members have no batch as dimension 0."""

import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any


@cache
def read_batch_dims() -> Any:
    """Return the contents of the file. It is read when an object of an unknown class is found."""
    return tomllib.loads(Path(__file__).with_name("batch_dims.toml").read_text("utf-8"))


@lru_cache(maxsize=256)
def is_cache(kind: type) -> bool:
    """Return whether modules add their keys and values to objects of the class ``kind``."""
    known = tuple(read_batch_dims()["cache"])
    return any((each.__module__, each.__name__) == known for each in kind.__mro__)


@lru_cache(maxsize=256)
def dims_of_object(kind: type) -> Mapping[str, int]:
    """Return the attributes of a cache, or of its layer, that contain rows of the batch.

    The values are the dimensions of the batch. The result is empty for other classes.
    """
    names = _names(kind)
    dims: dict[str, int] = {}
    for ending, attributes in read_batch_dims()["objects"].items():
        if any(name.endswith(ending) for name in names):
            dims.update(attributes)
    return dims


@lru_cache(maxsize=256)
def dims_of_output(kind: type) -> Mapping[str, Any] | None:
    """Return the fields whose rows are not along dimension 0; None for a class of no model."""
    names = _names(kind)
    if read_batch_dims()["output"] not in names:
        return None
    dims: dict[str, Any] = {}
    for beginning, fields in read_batch_dims()["outputs"].items():
        if any(name.startswith(beginning) for name in names):
            dims.update(fields)
    return dims


def _names(kind: type) -> list[str]:
    package = read_batch_dims()["package"]
    return [each.__name__ for each in kind.__mro__ if each.__module__.startswith(package)]
