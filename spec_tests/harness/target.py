"""The implementation under test, found by name.

A target is an importable package laid out like torch.nn.parallel. A name that it lacks fails the
tests that use the name, and no others.
"""

import importlib
from types import ModuleType
from typing import Any

import pytest

#: The parts of a target, and the submodule names each may have, in order of preference.
PARTS = {
    "comm": ("comm",),
    "functions": ("functions", "_functions"),
    "scatter_gather": ("scatter_gather",),
    "replicate": ("replicate",),
    "parallel_apply": ("parallel_apply",),
    "data_parallel": ("data_parallel",),
}


class Part:
    """One submodule of a target; a public name that it lacks is a failed test."""

    def __init__(self, name: str, module: ModuleType | None) -> None:
        self._name = name
        self._module = module

    def __getattr__(self, name: str) -> Any:
        # Names that begin with an underscore are probed by pytest and Hypothesis; answering
        # those probes with a failed test would hide the counterexample.
        if name.startswith("_"):
            raise AttributeError(name)
        if self._module is None:
            pytest.fail(f"the target has no submodule {self._name}", pytrace=False)
        try:
            return getattr(self._module, name)
        except AttributeError:
            pytest.fail(f"the target does not define {self._name}.{name}", pytrace=False)

    def __repr__(self) -> str:
        return self._name


class Target:
    """A package laid out like torch.nn.parallel.

    Args:
        name: What ``import`` takes, such as ``impl`` or ``torch.nn.parallel``.

    Raises:
        ImportError: there is no such package.
    """

    comm: Part
    functions: Part
    scatter_gather: Part
    replicate: Part
    parallel_apply: Part
    data_parallel: Part

    def __init__(self, name: str) -> None:
        self.name = name
        self.package = Part(name, importlib.import_module(name))
        for part, candidates in PARTS.items():
            setattr(self, part, Part(part, _first_module(name, candidates)))

    def __repr__(self) -> str:
        return f"<target {self.name}>"


def _first_module(package: str, candidates: tuple[str, ...]) -> ModuleType | None:
    for candidate in candidates:
        name = f"{package}.{candidate}"
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            # A dependency missing inside the submodule is the target's error, not an absent part.
            if error.name != name:
                raise
    return None
