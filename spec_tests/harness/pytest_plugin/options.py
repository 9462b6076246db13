"""The command-line options of the suite. ``pytest -p spec_tests`` loads them.

Without ``--target`` the module only adds the options.
"""

import os
import sys
from pathlib import Path

import pytest

from spec_tests.harness.conformance import profiles
from spec_tests.harness.environment.target import REFERENCE

#: The module with all other hooks. It is loaded only if ``--target`` is given.
PLUGIN = "spec_tests.harness.pytest_plugin.hooks"
#: Seconds after which a test fails as hanging, unless the user sets another limit.
TIME_LIMIT = 300.0
DEFAULT_TARGET = "impl"
NO_REFERENCE = "none"


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
    own = ("spec_tests", "spec_tests.conftest", __name__, PLUGIN)
    return [name for name in names if name in sys.modules and name not in own]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    add_device_options(parser)
    add_race_options(parser)
    add_target_options(parser)
    add_suite_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the other hooks and set the time limit of tests if ``--target`` is given."""
    if config.getoption("--target") is None:
        return
    # Without this variable Hypothesis writes files to the current folder.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    storage = cache / "torch-parallel-spec" / "hypothesis"
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(storage))
    config.pluginmanager.import_plugin(PLUGIN)
    # pytest-timeout reads this option later, in its own pytest_configure.
    if not config.getini("timeout") and config.getoption("timeout") is None:
        config.option.timeout = TIME_LIMIT


def add_device_options(parser: pytest.Parser) -> None:
    """Add ``--accelerator`` and ``--device-ids``."""
    group = parser.getgroup("devices")
    group.addoption(
        "--accelerator",
        default="auto",
        metavar="TYPE",
        help="device type: auto, sim, cuda or any type of torch.accelerator; "
        "auto: a real accelerator if there is one, else the simulator (default: auto)",
    )
    group.addoption(
        "--device-ids",
        default=None,
        metavar="0,1,...",
        help="ordinals of the devices, in order; a repeated device stands for several "
        "(default: all devices)",
    )
    group.addoption(
        "--dtypes",
        default=None,
        metavar="float32,int64,...",
        help="use only these dtypes on the devices (default: all in which the devices compute)",
    )


def add_race_options(parser: pytest.Parser) -> None:
    """Add the options about races, delayed copies and faults of simulated devices."""
    group = parser.getgroup("devices")
    group.addoption(
        "--no-races",
        action="store_true",
        help="do not fail tests in which accesses to device memory race; sim only",
    )
    group.addoption(
        "--late-copies",
        default=None,
        type=int,
        metavar="SEED",
        help="delay copies until the host or another stream waits for them, so that early reads "
        "get NaN; sim only; seed 0: all copies, another seed: three in four, chosen at random",
    )
    group.addoption(
        "--fault",
        default=None,
        metavar="NAME",
        help="imitate a defect of real devices during the whole run; sim only; an unknown name "
        "prints the names",
    )
    group.addoption(
        "--features",
        default=None,
        choices=["full", "lean"],
        help="features of simulated devices; full: all; lean: what training in float32 needs "
        "(default: full)",
    )
    group.addoption(
        "--without",
        action="append",
        default=[],
        metavar="FEATURE",
        help="switch off a feature of simulated devices, or do not try or use a feature or dtype "
        "of the list that doctor prints; repeatable: new-streams, events, record-stream, "
        "half-precision, double-precision, complex-numbers, sparse, pinned-memory, autocast, "
        "kept-parameters",
    )


def add_target_options(parser: pytest.Parser) -> None:
    """Add the options about target and reference."""
    group = parser.getgroup("conformance")
    group.addoption(
        "--target",
        default=None,
        metavar="NAME",
        help="importable package to check, with the submodules of torch.nn.parallel "
        f"(default in a checkout: {DEFAULT_TARGET})",
    )
    group.addoption(
        "--target-map",
        action="append",
        default=[],
        metavar="NAME=PLACE",
        help="place of a submodule or name that the target has elsewhere than torch.nn.parallel: "
        "data_parallel.DataParallel=package.module:Name; or a TOML file with such pairs; "
        "repeatable",
    )
    group.addoption(
        "--reference",
        default=None,
        choices=[REFERENCE, NO_REFERENCE],
        help="implementation to compare with, in addition to the suite's laws, oracle and pinned "
        "texts; none: do not use torch.nn.parallel, and do not run tests that only compare with "
        f"it (default: {REFERENCE})",
    )
    group.addoption(
        "--divergences",
        default=None,
        metavar="FILE",
        help="TOML register of the target's known divergences; a recorded test that passes is an "
        "error (default: spec_tests/registers/TARGET.toml if it exists)",
    )


def add_suite_options(parser: pytest.Parser) -> None:
    """Add the options that select clauses, and write or resume verdicts."""
    group = parser.getgroup("conformance")
    group.addoption(
        "--clause",
        action="append",
        default=[],
        metavar="NAME",
        help="run only the tests of this clause, or of all clauses whose ids begin with NAME; "
        "repeatable",
    )
    group.addoption(
        "--profile",
        choices=[*profiles.load()],
        help="run only the clauses of this profile, and say whether the target conforms to it; "
        "forward: without gradients (default: the profile that the register names)",
    )
    group.addoption(
        "--verdicts",
        default=None,
        metavar="FILE",
        help="write the verdict of each test to this file when the test ends, one JSON object a "
        "line",
    )
    group.addoption(
        "--resume",
        action="store_true",
        help="skip tests that have a verdict in the file of --verdicts, and append to the file",
    )
