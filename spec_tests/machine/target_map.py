"""The places of a target's parts: ``data_parallel.DataParallel=mmcv.parallel:MMDataParallel``.

The left side is a part (a submodule of torch.nn.parallel) or a name in a part. The right side is
its place: a module, or a name in a module. A TOML file has one table for each part.
"""

import importlib
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from spec_tests.machine import input_files

#: For a part, or a name in a part: its place in the target.
TargetMap = dict[str, str]
#: The shape of a file: for each part, its place or a table with the places of names.
_SHAPE = {...: (str, {...: str})}


@input_files.usage_errors()
def load(options: Iterable[str], parts: Iterable[str]) -> TargetMap:
    """Return the pairs in all values of ``--target-map``; a later value overrides an earlier one.

    Args:
        options: The values of ``--target-map``.
        parts: The names of all parts.

    Raises:
        pytest.UsageError: an option is neither pair nor file, or a part or place does not exist.
    """
    found = dict(pair for option in options for pair in pairs(option))
    for name, place in found.items():
        if name.partition(".")[0] not in parts:
            problem = f"unknown part; the parts are {', '.join(parts)}"
            raise input_files.refuse(f"--target-map {name}", problem)
        try:
            resolve(place)
        # The name of a relative module, such as ".comm", raises TypeError.
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise input_files.refuse(f"--target-map {name}={place}", error) from None
    return found


def resolve(place: str) -> Any:
    """Return the module or object at a place: ``package.module`` or ``package.module:name``."""
    module, _, name = place.partition(":")
    found: Any = import_module(module)
    return getattr(found, name) if name else found


def import_module(name: str) -> ModuleType:
    """Import a module of the target without the warnings of the import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def pairs(option: str) -> Iterator[tuple[str, str]]:
    """Yield pairs from one value of ``--target-map``: a part or name, and its place."""
    name, equals, place = option.partition("=")
    if equals:
        yield name, place
    elif os.path.isfile(option):  # Path.is_file raises an error for a long name
        yield from _flatten(input_files.read_toml(Path(option), _SHAPE))
    else:
        raise pytest.UsageError(f"--target-map {option}: neither NAME=PLACE nor a file")


def _flatten(tables: Mapping[str, str | Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    for part, value in tables.items():
        if isinstance(value, str):
            yield part, value
        else:
            yield from ((f"{part}.{name}", place) for name, place in value.items())
