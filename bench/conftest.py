"""Options and fixtures of the benchmarks: a timer that waits for the devices."""

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from typing import Any, ParamSpec, TypeVar

import pytest
import torch

from spec_tests.machine import process_state
from spec_tests.machine.devices import Topology, not_run
from spec_tests.machine.fixtures import topology_of
from spec_tests.machine.options import DEFAULT_TARGET, mapping_of, target_of
from spec_tests.machine.target import REFERENCE, Target, load_map
from spec_tests.machine.verdicts import NOT_RUN

from . import alternation

P = ParamSpec("P")
R = TypeVar("R")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the number of intra-op threads."""
    parser.addoption(
        "--default-threads",
        action="store_true",
        help="on the simulator: keep PyTorch's number of intra-op threads, one per core, "
        "in place of one",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Create the devices. On the simulator, limit PyTorch to one intra-op thread."""
    # In a project that installed the wheel, pytest does not have the settings of the checkout.
    config.addinivalue_line("python_files", "bench_*.py")
    config.addinivalue_line("python_functions", "bench_*")
    is_simulated = topology_of(config).accelerator == "sim"
    if is_simulated and not config.getoption("--default-threads"):
        # Otherwise OpenMP's threads and the replicas' threads compete for the same cores.
        torch.set_num_threads(1)


def pytest_benchmark_update_machine_info(config: Any, machine_info: dict[str, Any]) -> None:
    """Record the environment. Only runs with equal environments are compared."""
    topology = topology_of(config)
    machine_info["target"] = target_of(config)
    machine_info["python_version"] = process_state.python_version()
    machine_info["torch"] = torch.__version__
    machine_info["devices"] = [str(device) for device in topology.devices]
    machine_info["threads"] = torch.get_num_threads()
    if topology.accelerator == "cuda":
        machine_info["gpu"] = torch.cuda.get_device_name(topology.devices[0])
        machine_info["cuda"] = torch.version.cuda


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Prevent a second error of pytest-benchmark if a benchmark fails before it is timed."""
    report = yield
    if report.failed and (benchmark := getattr(item, "funcargs", {}).get("benchmark")):
        benchmark.skipped = True
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_benchmark_update_json(output_json: dict[str, Any]) -> None:
    """Save the times of the libraries that alternate with the target."""
    alternation.add_other_libraries(output_json)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the ratio of each benchmark, and how many are skipped for each reason.

    The table of pytest-benchmark has the target's times.
    """
    session: Any = config._benchmarksession  # type: ignore[attr-defined] # of pytest-benchmark
    found = [each for each in session.benchmarks if "pairs" in each.extra_info]
    if found:
        terminalreporter.section(
            f"reference / {target_of(config)}: median, quartiles of the turns"
        )
    for each in found:
        pairs = each.extra_info["pairs"]
        spread = f"{pairs['q1']:.2f} to {pairs['q3']:.2f}"
        terminalreporter.write_line(f"{each.group:<52}{pairs['median']:>8.2f}  {spread}")
    found = [each for each in session.benchmarks if "efficiency" in each.extra_info]
    if found:
        terminalreporter.section(
            "efficiency: one device / replicas / their number, median of the turns"
        )
    for each in found:
        values = [f"{name} {value:.2f}" for name, value in each.extra_info["efficiency"].items()]
        terminalreporter.write_line(f"{each.group:<56}{', '.join(values)}")
    reasons = Counter(str(each.longrepr[2]) for each in terminalreporter.getreports("skipped"))
    for reason, number in reasons.items():
        text = reason.removeprefix("Skipped: ").removeprefix(NOT_RUN)
        terminalreporter.write_line(f"{number} skipped: {text}")


@pytest.fixture(scope="session")
def libraries(request: pytest.FixtureRequest) -> dict[str, Target]:
    """Return the implementations to compare, by their names in the results."""
    name, places = target_of(request.config), mapping_of(request.config)
    return {"reference": Target(REFERENCE), name: Target(name, load_map(places))}


@pytest.fixture
def impl_only(request: pytest.FixtureRequest) -> None:
    """Skip a benchmark of names that only impl has."""
    if target_of(request.config) != DEFAULT_TARGET:
        not_run("measures what only impl has")


@pytest.fixture
def time_alternately(
    benchmark: Any, topology: Topology, request: pytest.FixtureRequest
) -> Callable[..., None]:
    """Return a function that times calls of several libraries alternately.

    A time ends when every device is idle. The first argument of the function has the call of each
    library, by name. Each keyword argument has further values to save for the library of this
    name.
    """
    benchmark.extra_info["devices"] = [str(device) for device in topology.devices]
    target = target_of(request.config)
    seconds = float(request.config.getoption("benchmark_max_time"))

    def time_calls(calls: Mapping[str, Callable[[], object]], **info: Mapping[str, Any]) -> None:
        synchronized = {
            library: synchronize_after(call, topology) for library, call in calls.items()
        }
        alternation.time_alternately(benchmark, target, synchronized, len(calls) * seconds, info)

    return time_calls


def synchronize_after(function: Callable[P, R], topology: Topology) -> Callable[P, R]:
    """Return a function that calls ``function`` and waits until every device is idle."""

    def call_and_synchronize(*args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        topology.synchronize()
        return result

    return call_and_synchronize
