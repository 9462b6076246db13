"""Imports the target before the first test. If that fails, the run ends with one sentence."""

import sys
import traceback
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from spec_tests.machine import input_files, judge, register
from spec_tests.machine.hooks import register_of, topology_of
from spec_tests.machine.options import mapping_of, target_of
from spec_tests.machine.target import PARTS, Target, load_map

_HERE = Path(__file__).parent


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import the target. The accelerator is enabled before, if the target has a package."""
    config = session.config
    if not hasattr(config, "workerinput"):
        name, mapping = target_of(config), mapping_of(config)
        if not mapping:  # A map may name all parts of a target without a package.
            _require_package(name)
        topology_of(config)  # The simulated accelerator may have to be built, which takes longer.
        target = require_target(name, mapping)
        if (path := register_of(config)) is not None:
            judge.require_missing(register.load_lacks(path), target, path)


def _require_package(name: str) -> None:
    package, _, _ = name.partition(".")
    if package.isidentifier() and package not in sys.modules and find_spec(package) is None:
        raise pytest.UsageError(
            f"the target {name} cannot be imported: no module named {package!r}"
        )


def require_target(name: str, mapping: Iterable[str]) -> Target:
    """Import all parts of a target, and return it.

    Args:
        name: The importable name of the target.
        mapping: The values of ``--target-map``.

    Raises:
        pytest.UsageError: A module cannot be imported, or the target has no part.
    """
    if not all(map(str.isidentifier, name.split("."))):
        raise pytest.UsageError(f"the target {name} is no module name, such as package.module")
    try:
        target = Target(name, load_map(mapping, PARTS))
    except pytest.UsageError:
        raise
    except (Exception, SystemExit) as error:  # the code of a target may raise any error
        text = input_files.shorten(_describe(error))
        raise pytest.UsageError(f"the target {name} cannot be imported: {text}") from None
    if not target.has_parts:
        raise pytest.UsageError(
            f"the target {name} has none of the submodules {', '.join(PARTS)}; "
            "--target-map NAME=PLACE names other places"
        )
    return target


def _describe(error: BaseException) -> str:
    """Return class, text, file and line of an error in the code of a target."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_of_target(frame.filename)]
    place = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {error}{place}"


def _is_of_target(file: str) -> bool:
    """Return whether a file belongs neither to Python's import system nor to the suite."""
    is_importlib = file.startswith("<frozen importlib") or Path(file).parent.name == "importlib"
    return not is_importlib and _HERE not in Path(file).parents
