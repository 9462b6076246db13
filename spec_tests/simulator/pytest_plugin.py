"""Simulated devices for tests of any project: ``pytest -p spec_tests.simulator.pytest_plugin``.

``--sim-devices 4`` enables the simulator before the tests are collected. The fixture
``sim_devices`` is a tuple of the devices. With ``--races``, or in a test with the marker or the
fixture ``races``, two accesses to the memory of a device that are not ordered fail the test.

Of ``spec_tests`` only the simulator is imported.
"""

import contextlib
from argparse import Namespace
from collections.abc import Generator, Sequence

import pytest
import torch

from spec_tests import simulator

#: The largest number of races that a failure message shows.
_MAX_RACES = 5
#: Why the simulator is not enabled; empty if it is.
_MISSING = pytest.StashKey[str]()


class RaceError(pytest.fail.Exception):  # type: ignore[misc, name-defined]  # no public name
    """The error of a test whose accesses to device memory race."""

    def __init__(self, races: Sequence[simulator.Race]) -> None:
        super().__init__(race_text(races), pytrace=False)
        self.races = races


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    add = parser.getgroup("simulator", "simulated accelerator").addoption
    text = "enable the simulated accelerator sim with N devices, 1 to 64"
    add("--sim-devices", type=int, metavar="N", help=text)
    text = "let the names of CUDA mean the devices of --sim-devices"
    add("--sim-as-cuda", action="store_true", help=text)
    text = "fail tests in which accesses to device memory race; sim only"
    add("--races", action="store_true", default=None, help=text)
    text = "do not fail them, not even in tests with the marker or the fixture races"
    add("--no-races", dest="races", action="store_false", help=text)
    text = (
        "delay copies until the host or another stream waits for them, so that early reads "
        "get NaN; sim only; seed 0: all copies, another seed: three in four, chosen at random"
    )
    add("--late-copies", type=int, metavar="SEED", help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Enable the simulator before a conftest file imports a module that looks for devices."""
    _start(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """Enable the simulator if a conftest file names this plugin, or in a worker of xdist."""
    text = "races: fail the test if accesses to the memory of simulated devices race"
    config.addinivalue_line("markers", text)
    late = config.getoption("late_copies")
    if late is not None and late < 0:
        raise pytest.UsageError(f"--late-copies {late}: a seed is 0 or larger")
    _start(config, config.option)
    is_of_suite = config.getoption("target", None)  # The suite enables its devices later.
    if not (_MISSING in config.stash or is_simulated() or is_of_suite):
        for name in ("sim_as_cuda", "races", "late_copies"):
            if config.getoption(name) is not None and config.getoption(name) is not False:
                option = f"--{name.replace('_', '-')}"
                raise pytest.UsageError(f"{option}: --sim-devices N is missing")


def _start(config: pytest.Config, options: Namespace) -> None:
    """Enable the simulator, if ``--sim-devices`` is given. A second call does nothing."""
    count = options.sim_devices
    if count is None or _MISSING in config.stash:
        return
    capture = config.pluginmanager.getplugin("capturemanager")
    # The first build prints a line.
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        try:
            simulator.enable(count, as_cuda=options.sim_as_cuda)
            config.stash[_MISSING] = ""
        except simulator.MissingToolError as error:
            config.stash[_MISSING] = str(error)
        except (RuntimeError, ValueError) as error:
            raise pytest.UsageError(f"--sim-devices {count}: {error}") from None


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return a line about the devices, and one if the machine has CUDA devices as well."""
    if config.stash.get(_MISSING, ""):
        return [f"sim: no devices, because {config.stash[_MISSING]}"]
    if _MISSING not in config.stash:
        return []
    lines = [f"sim: {torch.accelerator.device_count()} devices"]
    if torch.cuda.is_available() and not config.getoption("sim_as_cuda"):
        lines.append("sim: CUDA has devices as well; torch.accelerator means those of sim")
    return lines


@pytest.fixture(scope="session")
def sim_devices(request: pytest.FixtureRequest) -> tuple[torch.device, ...]:
    """The simulated devices, each a ``torch.device``. Skips the test if there are none."""
    if not is_simulated():
        missing = "needs simulated devices: --sim-devices N"
        pytest.skip(request.config.stash.get(_MISSING, missing))
    return tuple(torch.device("sim", index) for index in range(torch.accelerator.device_count()))


@pytest.fixture
def races(sim_devices: tuple[torch.device, ...]) -> None:
    """Fails the test if accesses to device memory race."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a passing test if its accesses to device memory race; report those of a failing one."""
    wanted, late = item.config.getoption("races"), item.config.getoption("late_copies")
    if wanted is None:
        names = getattr(item, "fixturenames", ())
        wanted = item.get_closest_marker("races") is not None or "races" in names
    if not is_simulated() or not (wanted or late is not None):
        return (yield)
    try:
        with simulator.races(late_copies=late) as found:
            result = yield
    except Exception:
        if wanted and found:
            item.add_report_section("call", "races", race_text(found))
        raise
    if wanted and found:
        raise RaceError(found)
    return result


def is_simulated() -> bool:
    """Return whether the current accelerator is the simulator."""
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and accelerator.type == "sim"


def race_text(found: Sequence[simulator.Race]) -> str:
    """Return the reports of the first races."""
    shown = [f"{race}" for race in found[:_MAX_RACES]]
    left = len(found) - len(shown)
    return "\n".join([*shown, f"and {left} more"] if left else shown)
