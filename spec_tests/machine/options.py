"""The command-line options of the suite. ``pytest -p spec_tests`` loads them.

Without ``--target`` the module only adds the options.
"""

import importlib
import os
import sys
from pathlib import Path

import pytest

from spec_tests.machine.shared_options import NO_REFERENCE, SHARED

#: The plugin with the options about races and delayed copies.
pytest_plugins = ["spec_tests.simulator.pytest_plugin"]
#: The modules with all other hooks. They are loaded only if there is a target.
STAGES = tuple(
    f"spec_tests.machine.{name}"
    for name in ("hooks", "import_check", "collect", "guards", "judge")
)
#: Seconds after which a test fails as hanging, unless the user sets another limit.
TIME_LIMIT = 300.0
DEFAULT_TARGET = "impl"


def target_of(config: pytest.Config) -> str:
    """Return the name of the package under test."""
    name: str = config.getoption("--target") or DEFAULT_TARGET
    return name


def has_reference(config: pytest.Config) -> bool:
    """Return whether the target is compared with torch.nn.parallel."""
    return bool(config.getoption("--reference") != NO_REFERENCE)


def mapping_of(config: pytest.Config) -> list[str]:
    """Return the values of ``--target-map``."""
    values: list[str] = config.getoption("--target-map")
    return values


def imported_plugins(config: pytest.Config) -> list[str]:
    """Return the modules that ``-p`` has imported. One of them may register a back end."""
    names: list[str] = config.getoption("plugins")
    own = ("spec_tests", "spec_tests.conftest", __name__, *pytest_plugins)
    return [name for name in names if name in sys.modules and name not in own]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("conformance")
    group.addoption(
        "--target",
        default=None,
        metavar="NAME",
        help="importable package to check, with the submodules of torch.nn.parallel "
        f"(default in a checkout: {DEFAULT_TARGET})",
    )
    for name, arguments in SHARED.items():
        group.addoption(name, **arguments)
    group.addoption(
        "--recorded",
        action="store_true",
        help="run only the tests of the clauses that the register of the target records, and of "
        "those of --clause",
    )
    _add_device_options(parser.getgroup("devices"))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the other hooks and set the time limit of tests if there is a target."""
    if config.getoption("--target") is None:
        return
    # Without this variable Hypothesis writes files to the current folder.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    storage = cache / "torch-parallel-spec" / "hypothesis"
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(storage))
    for name in STAGES:
        if not config.pluginmanager.is_blocked(name):
            config.pluginmanager.register(importlib.import_module(name), name)
    # pytest-timeout reads this option later, in its own pytest_configure.
    if not config.getini("timeout") and config.getoption("timeout") is None:
        config.option.timeout = TIME_LIMIT


def _add_device_options(group: pytest.OptionGroup) -> None:
    """Add the options about faults and features of devices."""
    group.addoption(
        "--fault",
        default=None,
        metavar="NAME",
        help="imitate a defect of real devices during the whole run; sim only; an unknown name "
        "prints the names",
    )
    group.addoption(
        "--without",
        action="append",
        default=[],
        metavar="FEATURE",
        help="switch off a feature of simulated devices, all: all optional ones; on real devices, "
        "do not try or use a feature or dtype of the list that doctor prints; repeatable; an "
        "unknown name prints the names",
    )
