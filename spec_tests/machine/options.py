"""The command-line options of the suite. ``pytest -p spec_tests`` loads them.

Without ``--target`` the module only adds the options.
"""

import argparse
import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spec_tests.failure import SUITE
from spec_tests.machine.target import REFERENCE

#: The plugin with the options about races and delayed copies.
pytest_plugins = ["spec_tests.simulator.pytest_plugin"]
#: The modules with the profiles, fixtures and hooks of a run, loaded only if there is a target.
_STAGES = (
    *("profiles", "session", "fixtures", "collect"),
    *("guards", "time_limit", "judge", "workers"),
)
STAGES = tuple(f"spec_tests.machine.{name}" for name in _STAGES)
#: Seconds after which a test fails as hanging, unless the user sets another limit.
_TIME_LIMIT = 300.0
#: The settings of pytest for a run in any folder.
SETTINGS = Path(__file__).with_name("run.ini")
DEFAULT_TARGET = "impl"
NO_REFERENCE = "none"
#: The options that ``parallel-conformance run`` has, too. For each: the arguments of
#: ``ArgumentParser.add_argument``.
SHARED: dict[str, dict[str, Any]] = {
    "--accelerator": {
        "default": "auto",
        "metavar": "TYPE",
        "help": "device type: auto, sim, cuda or any type of torch.accelerator; "
        "auto: a real accelerator if there is one, else the simulator (default: auto)",
    },
    "--device-ids": {
        "metavar": "0,1,...",
        "help": "ordinals of the devices, in order; a repeated device stands for several "
        "(default: all devices)",
    },
    "--clause": {
        "action": "append",
        "default": [],
        "metavar": "NAME",
        "help": "run only the tests of this clause, or of all clauses whose ids begin with NAME, "
        "such as comm.sc; an id or whole words of ids, such as functions.gather.gradient, do not "
        "select functions.gather.gradient-split; repeatable",
    },
    "--target-map": {
        "action": "append",
        "default": [],
        "metavar": "NAME=PLACE",
        "help": "place of a submodule or name that the target has elsewhere than "
        "torch.nn.parallel: data_parallel.DataParallel=package.module:Name; or a TOML file with "
        "such pairs; repeatable",
    },
    "--reference": {
        "choices": [REFERENCE, NO_REFERENCE],
        "help": "implementation to compare with, in addition to the suite's laws, oracle and "
        "pinned texts; none: do not use torch.nn.parallel, and do not run tests that only compare "
        "with it (default: torch.nn.parallel)",
    },
    "--divergences": {
        "metavar": "FILE",
        "help": "TOML register of the target's known divergences; a recorded test that passes is "
        "an error (default: spec_tests/registers/TARGET.toml if it exists)",
    },
    "--verdicts": {
        "metavar": "FILE",
        "help": "write the verdict of each test to this file when the test ends, one JSON object "
        "a line",
    },
    "--resume": {
        "action": "store_true",
        "help": "continue an interrupted run: skip tests that have a verdict in the file of "
        "--verdicts, and append to the file",
    },
}


def target_of(config: pytest.Config) -> str:
    """Return the name of the package under test."""
    name: str = config.getoption("--target") or DEFAULT_TARGET
    return name


def suite_of(config: pytest.Config) -> Path:
    """Return the folder of the suite: of its chapters, their clauses, and the registers."""
    return Path(config.getoption("--suite"))


def mapping_of(config: pytest.Config) -> list[str]:
    """Return the values of ``--target-map``."""
    values: list[str] = config.getoption("--target-map")
    return values


def map_options(config: pytest.Config) -> list[str]:
    """Return the options ``--target-map`` of the run."""
    return [f"--target-map={value}" for value in mapping_of(config)]


def imported_plugins(config: pytest.Config) -> list[str]:
    """Return the modules that ``-p`` has imported. One of them may register a back end."""
    names: list[str] = config.getoption("plugins")
    own = ("spec_tests", __name__, *pytest_plugins)
    return [name for name in names if name in sys.modules and name not in own]


def command(config: pytest.Config) -> str:
    """Return the command that repeats a run.

    The command has the run's target, devices, their features and faults, clauses, reference,
    register, number of examples and filters of warnings.
    """
    given = [*_given(config, "divergences"), *_target_options(config)]
    given += [f"--clause={name}" for name in config.getoption("--clause")]
    passed_on = [*_device_options(config), *_given(config, "hypothesis-profile")]
    passed_on += [f"-W{text}" for text in config.getoption("pythonwarnings") or ()]
    given += ["--", *passed_on] if passed_on else []
    return shlex.join(["parallel-conformance", "run", target_of(config), *given])


def repeat_command(command: str, test: str, names: Sequence[str] = ()) -> str:
    """Return the command that repeats one test of a run.

    Args:
        command: The command of the run.
        test: The node id of the test.
        names: The ids of clauses that select the test.
    """
    own, _, passed_on = command.partition(" -- ")
    words = [word for word in own.split(" ") if not word.startswith("--clause=")]
    words += [f"--clause={name}" for name in names]
    words += ["--"] if own.startswith("parallel-conformance") else []
    words += [passed_on] if passed_on else []
    return " ".join([*words, "-k", test.partition("[")[0].rpartition("::")[2]])


def options_for_test(config: pytest.Config) -> list[str]:
    """Return the options of pytest that run a test with the target and the devices of this run."""
    return [f"--target={target_of(config)}", *_target_options(config), *_device_options(config)]


def _target_options(config: pytest.Config) -> list[str]:
    return [*_given(config, "accelerator", "device-ids", "reference"), *map_options(config)]


def _device_options(config: pytest.Config) -> list[str]:
    options = [f"-p{name}" for name in imported_plugins(config)]
    options += [f"--without={name}" for name in config.getoption("--without")]
    races = {None: [], True: ["--races"], False: ["--no-races"]}[config.getoption("races")]
    return [*options, *_given(config, "fault", "late-copies"), *races]


def _given(config: pytest.Config, *names: str) -> list[str]:
    """Return those of the options ``names`` that have a value, with the value."""
    values = {name: config.getoption(f"--{name}") for name in names}
    return [f"--{name}={value}" for name, value in values.items() if value is not None]


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
        help="run only the tests of the clauses that the register of the target records; with "
        "--clause, of those of them that it names",
    )
    # The tests of the suite itself run a small one in another folder.
    group.addoption("--suite", default=str(SUITE), help=argparse.SUPPRESS)
    group = parser.getgroup("devices")
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
    # A worker of pytest-xdist has the options of the controller.
    if not hasattr(config.option, "has_time_limit"):
        given = config.getoption("timeout"), os.environ.get("PYTEST_TIMEOUT")
        has_limit = given != (None, None) or bool(config.getini("timeout"))
        config.option.has_time_limit = has_limit
    if not config.option.has_time_limit:  # pytest-timeout reads the option later.
        config.option.timeout = _TIME_LIMIT
