"""The implementation under test, imported by name, and the places of its parts.

A target is an importable package with the submodules of torch.nn.parallel, called its *parts*.
``--target-map`` names other places: ``data_parallel.DataParallel=mmcv.parallel:MMDataParallel``.
The left side is a part or a name in a part, the right side a module or a name in a module. A TOML
file has one table for each part. If the target lacks a name, only the tests that use this name get
the verdict *not-offered*.
"""

import importlib
import os
import re
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from spec_tests.failure import SUITE
from spec_tests.machine import input_files

#: The name of the implementation that the specification describes.
REFERENCE = "torch.nn.parallel"
#: For each part: the names that the submodule may have in a target, preferred names first.
PARTS = {
    "comm": ("comm",),
    "functions": ("functions", "_functions"),
    "scatter_gather": ("scatter_gather",),
    "replicate": ("replicate",),
    "parallel_apply": ("parallel_apply",),
    "data_parallel": ("data_parallel",),
}
#: The shape of a file: for each part, its place or a table with the places of names.
_SHAPE = dict[str, str | dict[str, str]]


def load_map(options: Iterable[str]) -> dict[str, str]:
    """Return the place of each part, or name in a part, that the values of ``--target-map`` name.

    Raises:
        pytest.UsageError: an option is neither pair nor file, or a part or place does not exist.
    """
    places = dict(pair for option in options for pair in map_pairs(option))
    for name, place in places.items():
        if name.partition(".")[0] not in PARTS:
            problem = f"unknown part; the parts are {', '.join(PARTS)}"
            raise input_files.refuse(f"--target-map {name}", problem)
        try:
            resolve(place)
        # The name of a relative module, such as ".comm", raises TypeError.
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise input_files.refuse(f"--target-map {name}={place}", error) from None
    return places


def resolve(place: str) -> Any:
    """Return the module or object at a place: ``package.module`` or ``package.module:name``."""
    module, _, name = place.partition(":")
    imported: Any = import_module(module)
    return getattr(imported, name) if name else imported


def import_module(name: str) -> ModuleType:
    """Import a module of the target without the warnings of the import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def map_pairs(option: str) -> Iterator[tuple[str, str]]:
    """Yield pairs from one value of ``--target-map``: a part or name, and its place."""
    name, equals, place = option.partition("=")
    if equals:
        yield name, place
    elif os.path.isfile(option):  # Path.is_file raises an error for a long name
        for part, value in input_files.read_toml(Path(option), _SHAPE).items():
            if isinstance(value, str):
                yield part, value
            else:
                yield from ((f"{part}.{name}", place) for name, place in value.items())
    else:
        raise pytest.UsageError(f"--target-map {option}: neither NAME=PLACE nor a file")


class NotOffered(pytest.skip.Exception):  # type: ignore[misc, name-defined] # typed as Any
    """The error of a test that uses a name that the target lacks.

    The class derives from pytest's skip because Hypothesis re-raises a skip at once. After other
    exceptions, Hypothesis searches for a smaller failing call.
    `judge` turns the skip into a failure.
    """


#: The last line of the printed traceback of a `NotOffered` in another process. pytest may indent
#: the line.
_LAST_LINE = re.compile(rf"^ *{__name__}\.NotOffered: (.+)$", re.MULTILINE)


def not_offered_text(error: BaseException) -> str | None:
    """Return the text of `NotOffered` if a test failed because of a missing name, else None."""
    if isinstance(error, NotOffered):
        return str(error)
    match = _LAST_LINE.search(str(error))
    return match[1] if match else None


def missing_name(text: str) -> str:
    """Return the missing name in a text of `NotOffered`: ``comm.scatter``, or ``comm``."""
    return text.rpartition(" ")[2]


class Part:
    """A submodule of a target. Access to a missing public name raises `NotOffered`.

    Args:
        name: The name of the submodule.
        module: The module; None if the target has none.
        named: Objects that ``--target-map`` takes from other modules, by name.
    """

    def __init__(
        self, name: str, module: ModuleType | None, named: Mapping[str, Any] | None = None
    ) -> None:
        self._name = name
        self._module = module
        self._named = named or {}
        self.exists = bool(module is not None or named)

    def __getattr__(self, name: str) -> Any:
        # pytest and Hypothesis look up private names while they report a failure. NotOffered would
        # replace that failure.
        if name.startswith("_"):
            raise AttributeError(name)
        return self.private(name)

    def offers(self, name: str) -> bool:
        """Return whether the target has an object with this name."""
        try:
            self.private(name)
        except NotOffered:
            return False
        return True

    def private(self, name: str) -> Any:
        """Return the object with this name, which may begin with an underscore.

        Raises:
            NotOffered: The target lacks the name.
        """
        if name in self._named:
            return self._named[name]
        if not self.exists:
            raise NotOffered(f"the target has no submodule {self._name}")
        try:
            return getattr(self._module, name)
        except AttributeError:
            text = f"the target does not define {self._name}.{name}"
            raise NotOffered(text) from None

    def __repr__(self) -> str:
        return self._name


class Target:
    """A package laid out like torch.nn.parallel.

    Args:
        name: The importable name, such as ``impl`` or ``torch.nn.parallel``.
        mapping: For each part or name that the target defines under another name than
            torch.nn.parallel: its place; see `load_map`.

    Raises:
        ImportError: there is no such package.
    """

    comm: Part
    functions: Part
    scatter_gather: Part
    replicate: Part
    parallel_apply: Part
    data_parallel: Part

    def __init__(self, name: str, mapping: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.mapping = dict(mapping or {})
        import_module(name)
        for part, candidates in PARTS.items():
            place = self.mapping.get(part)
            module = resolve(place) if place else _import_first(name, candidates)
            names = [key.split(".", 1)[1] for key in self.mapping if key.startswith(f"{part}.")]
            named = {key: resolve(self.mapping[f"{part}.{key}"]) for key in names}
            setattr(self, part, Part(part, module, named))

    def offers(self, name: str) -> bool:
        """Return whether the target has a part, or a name in a part: ``comm.scatter``."""
        part_name, _, inner = name.partition(".")
        part: Part = getattr(self, part_name)
        return part.offers(inner) if inner else part.exists

    def submodule(self, name: str) -> ModuleType:
        """Return a submodule of the package. Its name need not be in `PARTS`."""
        module = _import_first(self.name, (name,))
        if module is None:
            raise NotOffered(f"the target has no submodule {name}")
        return module

    def __repr__(self) -> str:
        return f"<target {self.name}>"


def _import_first(package: str, candidates: tuple[str, ...]) -> ModuleType | None:
    for candidate in candidates:
        name = f"{package}.{candidate}"
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            # The submodule exists, but a module that it imports is missing: the target is broken.
            if error.name != name:
                raise
    return None


def require_target(name: str, mapping: Iterable[str]) -> Target:
    """Import all parts of a target, given the values of ``--target-map``, and return it.

    Raises:
        pytest.UsageError: A module cannot be imported, or the target has no part.
    """
    if not all(map(str.isidentifier, name.split("."))):
        raise pytest.UsageError(f"the target {name} is no module name, such as package.module")
    try:
        target = Target(name, load_map(mapping))
    except pytest.UsageError:
        raise
    except (Exception, SystemExit) as error:  # the code of a target may raise any error
        text = input_files.in_one_line(_describe(error))
        raise pytest.UsageError(f"the target {name} cannot be imported: {text}") from None
    if not any(map(target.offers, PARTS)):
        raise pytest.UsageError(
            f"the target {name} has none of the submodules {', '.join(PARTS)}; "
            "--target-map NAME=PLACE names other places"
        )
    return target


def _describe(error: BaseException) -> str:
    """Return class, text, file and line of an error in the code of a target."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    # Frames neither of Python's import system nor of the suite.
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen importlib")
        and Path(frame.filename).parent.name != "importlib"
        and SUITE not in Path(frame.filename).parents
    ]
    place = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {error}{place}"
