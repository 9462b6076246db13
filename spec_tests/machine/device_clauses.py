"""The clauses of the chapter ``devices``, and their tests as functions of the devices.

A test of the chapter has no argument besides `topology`, except those that Hypothesis draws. Its
assertions have messages of one line, which ``doctor`` prints.
"""

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, settings

from spec_tests.failure import SUITE
from spec_tests.machine import clauses
from spec_tests.machine.clauses import Clause
from spec_tests.machine.devices import Topology

_NAME = "devices"
#: The settings of a probe: few examples, and no time to find a smaller one that fails.
_FEW = settings(
    max_examples=3,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


@cache
def load() -> dict[str, Clause]:
    """Return the clauses of the chapter by id."""
    found = clauses.load()
    return {name: clause for name, clause in found.items() if clause.chapter == _NAME}


def features() -> tuple[str, ...]:
    """Return the optional features of devices. Each is the name of a set of clauses."""
    return tuple(dict.fromkeys(c.feature for c in load().values() if c.feature))


def run(name: str, topology: Topology) -> None:
    """Run the tests of the clause ``name`` with few examples."""
    # Hypothesis has no public function that runs a decorated test with other settings.
    for test in _tests()[name]:
        with patch.object(test, "_hypothesis_internal_use_settings", _FEW, create=True):
            test(topology=topology)


@cache
def _tests() -> dict[str, list[Callable[..., None]]]:
    """Return the tests of each clause, in all files of the chapter."""
    tests: dict[str, list[Callable[..., None]]] = {}
    for module in pkgutil.iter_modules([str(SUITE / _NAME)], "spec_tests.devices."):
        for test in vars(importlib.import_module(module.name)).values():
            for mark in getattr(test, "pytestmark", ()):
                tests.setdefault(mark.args[0], []).append(test)
    return tests
