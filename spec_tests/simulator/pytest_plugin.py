"""Simulated devices for tests of any project: ``pytest -p spec_tests.simulator.pytest_plugin``.

``--sim-devices 4`` enables the simulator before the tests are collected. The fixture
``sim_devices`` is a tuple of the devices. With ``--races``, or in a test with the marker or the
fixture ``races``, two accesses to the memory of a device that are not ordered fail the test.

The module imports only pytest until an option or a test needs the simulator.
"""

import re
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from spec_tests.simulator import Race

#: The oldest release of PyTorch that the simulator supports.
_OLDEST = (2, 11)
#: The largest number of races that a failure message shows.
_MAX_RACES = 5
#: Why the simulator is not enabled; empty if it is.
_MISSING = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("simulator", "simulated accelerator")
    group.addoption(
        "--sim-devices",
        type=int,
        metavar="N",
        help="enable the simulated accelerator sim with N devices, 1 to 64",
    )
    group.addoption(
        "--sim-as-cuda",
        action="store_true",
        help="let the names of CUDA mean the devices of --sim-devices",
    )
    group.addoption(
        "--races",
        action="store_true",
        default=None,
        help="fail tests in which accesses to device memory race; sim only",
    )
    group.addoption(
        "--no-races",
        dest="races",
        action="store_false",
        help="do not fail them, not even in tests with the marker or the fixture races",
    )
    group.addoption(
        "--late-copies",
        default=None,
        type=int,
        metavar="SEED",
        help="delay copies until the host or another stream waits for them, so that early reads "
        "get NaN; sim only; seed 0: all copies, another seed: three in four, chosen at random",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Enable the simulator, if ``--sim-devices`` is given."""
    text = "races: fail the test if accesses to the memory of simulated devices race"
    config.addinivalue_line("markers", text)
    count, as_cuda = config.getoption("sim_devices"), config.getoption("sim_as_cuda")
    if count is not None:
        capture = config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():  # The first build prints a line.
            config.stash[_MISSING] = _enable(count, as_cuda)
    elif as_cuda:
        raise pytest.UsageError("--sim-as-cuda: --sim-devices N is missing")


def _enable(count: int, as_cuda: bool) -> str:
    """Enable the simulator; return why it cannot be built, or an empty text."""
    _check_torch()
    from spec_tests import simulator

    try:
        simulator.enable(count, as_cuda=as_cuda)
    except simulator.MissingToolError as error:
        return str(error)
    except (RuntimeError, ValueError) as error:
        raise pytest.UsageError(f"--sim-devices {count}: {error}") from None
    return ""


def _check_torch() -> None:
    import torch

    release = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
    if release < _OLDEST:
        text = f"--sim-devices: needs PyTorch 2.11 or newer, this is {torch.__version__}"
        raise pytest.UsageError(text)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return a line about the devices, and one if the machine has CUDA devices as well."""
    if _MISSING not in config.stash:
        return []
    if config.stash[_MISSING]:
        return [f"sim: no devices, because {config.stash[_MISSING]}"]
    import torch

    lines = [f"sim: {torch.accelerator.device_count()} devices"]
    if torch.cuda.is_available() and not config.getoption("sim_as_cuda"):
        lines.append("sim: CUDA has devices as well; torch.accelerator means those of sim")
    return lines


@pytest.fixture(scope="session")
def sim_devices(request: pytest.FixtureRequest) -> tuple[Any, ...]:
    """The simulated devices, each a ``torch.device``. Skips the test if there are none."""
    reason = request.config.stash.get(_MISSING, "needs simulated devices: --sim-devices N")
    if reason:
        pytest.skip(reason)
    import torch

    return tuple(torch.device("sim", index) for index in range(torch.accelerator.device_count()))


@pytest.fixture
def races(sim_devices: tuple[Any, ...]) -> None:
    """Fails the test if accesses to device memory race."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Record the accesses of a test, and fail a passing test if they race."""
    if _MISSING not in item.config.stash:
        return (yield)  # The suite has no --sim-devices; its own hook checks its tests.
    wanted, late = item.config.getoption("races"), item.config.getoption("late_copies")
    if wanted is None:
        names = getattr(item, "fixturenames", ())
        wanted = item.get_closest_marker("races") is not None or "races" in names
    if not (wanted or late is not None) or not is_simulated():
        return (yield)
    from spec_tests import simulator

    with simulator.races(late_copies=late) as found:
        result = yield
    if found and wanted:
        pytest.fail(race_text(found), pytrace=False)
    return result


def is_simulated() -> bool:
    """Return whether the current accelerator is the simulator."""
    import torch

    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and accelerator.type == "sim"


def race_text(found: "Sequence[Race]") -> str:
    """Return the reports of the first races."""
    shown = [f"{race}" for race in found[:_MAX_RACES]]
    left = len(found) - len(shown)
    return "\n".join([*shown, f"and {left} more"] if left else shown)
