"""The options of the suite, the implementation under test, and the rules of collection."""

from collections.abc import Generator
from pathlib import Path

import pytest

from spec_tests.harness import clauses, late, register
from spec_tests.harness.options import add_suite_options
from spec_tests.harness.racing import add_race_options
from spec_tests.harness.racing import pytest_runtest_call as pytest_runtest_call  # a hook
from spec_tests.harness.target import Target
from spec_tests.harness.topology import Topology
from spec_tests.harness.verdicts import Verdicts, read

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite."""
    add_suite_options(parser)
    add_race_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and the collector of verdicts; say how late inputs are."""
    config.addinivalue_line("markers", "clause(id): the statement of clauses.toml that it checks")
    late.set_delay(config.getoption("--late"))
    if not hasattr(config, "workerinput"):
        verdicts = Verdicts(config.getoption("--verdicts"), resume=config.getoption("--resume"))
        config.pluginmanager.register(verdicts, "verdicts")


def pytest_report_header(config: pytest.Config) -> str:
    """Name what is validated."""
    return f"target: {config.getoption('--target')}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse tests and clauses that do not name each other; mark the known divergences."""
    conformance = [item for item in items if _is_conformance(item.path)]
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
    if config.getoption("--resume"):
        _leave_out(config, items, {test["test"] for test in read(_verdicts_file(config))})


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Take no crash for a known difference."""
    report = yield
    register.judge(item, call, report)
    return report


def _verdicts_file(config: pytest.Config) -> Path:
    found = config.getoption("--verdicts")
    if found is None:
        raise pytest.UsageError("--resume needs the file of --verdicts")
    return Path(found)


def _leave_out(config: pytest.Config, items: list[pytest.Item], done: set[str]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
    items[:] = [item for item in items if item.nodeid not in done]


def _is_conformance(path: Path) -> bool:
    """Tell whether the tests of a file judge a target: those of the suite itself do not."""
    return HERE in path.parents and HERE / "meta_tests" not in path.parents


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


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, topology: Topology) -> Target:
    """The implementation under test."""
    return Target(request.config.getoption("--target"))
