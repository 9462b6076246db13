"""Options, fixtures and Hypothesis profiles of the suite; the rules of collection."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

from spec_tests import clauses, machine, register
from spec_tests import reference as reference_package
from spec_tests.options import add_device_options, add_suite_options
from spec_tests.target import Target
from spec_tests.topology import Topology, make_topology
from spec_tests.verdicts import Verdicts

HERE = Path(__file__).parent
#: Tests of the suite itself; they name no clause.
META = HERE / "meta_tests"
_TOPOLOGY = pytest.StashKey[Topology]()

# One failure a property: with two, Hypothesis raises a group that hides both from the summary.
_COMMON = settings(
    deadline=None,
    report_multiple_bugs=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "quick", _COMMON, max_examples=25, derandomize=bool(os.environ.get("CI"))
)
settings.register_profile("report", _COMMON, max_examples=200, derandomize=True)
settings.register_profile("fuzz", _COMMON, max_examples=5000)
# A mutant need only be caught: its counterexample is not shrunk.
_CATCH = (Phase.explicit, Phase.generate)
settings.register_profile("mutants", _COMMON, max_examples=50, derandomize=True, phases=_CATCH)
settings.register_profile("mutation", _COMMON, max_examples=20, derandomize=True, phases=_CATCH)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    add_device_options(parser)
    add_suite_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and the collector of verdicts."""
    config.addinivalue_line("markers", "clause(id): the statement of clauses.toml that it checks")
    for ignored in reference_package.IGNORED_WARNINGS:
        config.addinivalue_line("filterwarnings", ignored)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Verdicts(config.getoption("--verdicts")), "verdicts")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name what is validated, where, with what."""
    topology = _topology(config)
    return [
        f"target: {config.getoption('--target')}",
        f"devices: {', '.join(map(str, topology.devices))} (--accelerator {topology.accelerator})",
        f"torch: {torch.__version__}",
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Enable the accelerator before the first backward of all, of whichever test."""
    _topology(session.config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse tests and clauses that do not name each other; mark the known divergences."""
    conformance = [item for item in items if META not in item.path.parents]
    known = clauses.load()
    named: set[str] = set()
    for item in conformance:
        named |= _clauses_of(item, known)
    whole = _is_whole(config)
    orphans = sorted(set(known) - named) if whole else []
    if orphans:
        raise pytest.UsageError(f"clauses without a test: {', '.join(orphans)}")
    target = config.getoption("--target")
    records = register.for_target(target, config.getoption("--divergences"))
    register.mark(conformance, records, whole=whole)


def _clauses_of(item: pytest.Item, known: dict[str, clauses.Clause]) -> set[str]:
    names = [name for marker in item.iter_markers("clause") for name in marker.args]
    if not names:
        raise pytest.UsageError(f"{item.nodeid} names no clause")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise pytest.UsageError(f"{item.nodeid} names the unknown clause {unknown[0]}")
    item.user_properties.extend(("clause", name) for name in names)
    return set(names)


def _is_whole(config: pytest.Config) -> bool:
    # A selection by path, keyword or marker cannot tell whether a clause lacks a test.
    selections = ("keyword", "markexpr", "lf", "deselect")
    narrowed = any(config.getoption(selection, default=None) for selection in selections)
    roots = {Path(arg).resolve() for arg in config.args}
    return not narrowed and (HERE in roots or HERE.parent in roots)


def _topology(config: pytest.Config) -> Topology:
    if _TOPOLOGY not in config.stash:
        options = config.getoption("--accelerator"), config.getoption("--device-ids")
        config.stash[_TOPOLOGY] = make_topology(*options)
    return config.stash[_TOPOLOGY]


@pytest.fixture(scope="session")
def topology(request: pytest.FixtureRequest) -> Topology:
    """The devices of the run, once they have proved to copy what they are given."""
    found = _topology(request.config)
    machine.require_copies(found.devices)
    return found


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, topology: Topology) -> Target:
    """The implementation under test."""
    return Target(request.config.getoption("--target"))


@pytest.fixture(scope="session")
def reference(topology: Topology) -> Target:
    """torch.nn.parallel itself, runnable on the topology's devices."""
    return Target("torch.nn.parallel")
