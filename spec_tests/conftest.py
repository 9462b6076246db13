"""The implementation under test, and the rules of collection."""

from collections.abc import Generator
from pathlib import Path

import pytest

from spec_tests.harness.conformance import (
    clause_filter,
    clauses,
    failure_report,
    not_offered,
    register,
)
from spec_tests.harness.conformance.verdicts import AGREEMENT, JUDGED_BY, read, reference_only_text
from spec_tests.harness.environment import target_map
from spec_tests.harness.environment.target import PARTS, Target
from spec_tests.harness.environment.topology import Topology
from spec_tests.harness.pytest_plugin import selection, worker_errors
from spec_tests.harness.pytest_plugin.options import PLUGIN, mapping_of, target_of
from spec_tests.harness.pytest_plugin.race_check import (
    pytest_runtest_call as pytest_runtest_call,  # a hook
)
from spec_tests.harness.pytest_plugin.verdict_log import VerdictLog

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Load the rest of the suite, which the options load only for a target."""
    config.pluginmanager.import_plugin(PLUGIN)
    config.pluginmanager.register(worker_errors, worker_errors.__name__)
    clause_filter.configure(config, clauses.load())
    path = _register(config)
    verdicts: VerdictLog | None = config.pluginmanager.get_plugin("verdicts")
    if path is not None and verdicts is not None and _is_whole(config):
        verdicts.lacks = register.lacks(path, clauses.load())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files without a test of the selected clauses."""
    wanted = clause_filter.selected(config)
    if not wanted or collection_path.suffix != ".py" or HERE not in collection_path.parents:
        return None
    spelled_out = clause_filter.spelled_out_in(collection_path, wanted)
    return None if spelled_out and _is_conformance(collection_path) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse tests without clauses and clauses without tests; mark the known divergences."""
    with worker_errors.sent_to_controller(config, items):
        _choose(config, items)


def _choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    conformance = [item for item in items if _is_conformance(item.path)]
    known = clauses.load()
    named: set[str] = set()
    for item in conformance:
        named |= _clauses_of(item, known)
    whole = _is_whole(config) and not clause_filter.selected(config)
    if whole:
        _refuse("without a test", set(known) - named)
        _refuse(
            "judged by agreement alone", named - selection.judged_without_reference(conformance)
        )
    path = _register(config)
    if path is not None:
        not_offered.mark(conformance, register.lacks(path, known))
        register.mark(conformance, register.load(path), HERE, whole=whole)
    target_map.load(mapping_of(config), PARTS)  # refuse a wrong map before the first test
    wanted = clause_filter.selected(config)
    if wanted:
        selection.deselect(
            config, items, [each for each in items if not wanted & set(clauses.of(each))]
        )
    if config.getoption("--resume"):
        done = {test["test"] for test in read(selection.resumed_file(config))}
        selection.deselect(config, items, [item for item in items if item.nodeid in done])


def pytest_report_collectionfinish(items: list[pytest.Item]) -> str:
    """Return the number of clauses that are judged by agreement alone."""
    conformance = [item for item in items if _is_conformance(item.path)]
    named = {name for item in conformance for name in clauses.of(item)}
    return (
        reference_only_text(sorted(named - selection.judged_without_reference(conformance)))
        if named
        else ""
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge a failure by the register, and describe it."""
    report = yield
    if not_offered.judge(item, call, report):
        return report
    failure_report.fail_not_offered(item, call, report)
    register.judge(item, call, report)
    if report.failed or hasattr(report, "wasxfail"):
        report.user_properties.extend(failure_report.describe(item, call))
    return report


def _register(config: pytest.Config) -> Path | None:
    return register.path_of(target_of(config), config.getoption("--divergences"))


def _refuse(problem: str, found: set[str]) -> None:
    if found:
        raise pytest.UsageError(f"clauses {problem}: {', '.join(sorted(found))}")


def _is_conformance(path: Path) -> bool:
    """Whether the tests of a file judge a target; the meta tests do not."""
    return HERE in path.parents and HERE / "meta_tests" not in path.parents


def _clauses_of(item: pytest.Item, known: dict[str, clauses.Clause]) -> set[str]:
    names = clauses.of(item)
    if not names:
        raise pytest.UsageError(f"{item.nodeid} names no clause")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise pytest.UsageError(f"{item.nodeid} names the unknown clause {unknown[0]}")
    hidden = set(names) - clause_filter.spelled_out_in(item.path, frozenset(names))
    if hidden:
        raise pytest.UsageError(f"{item.nodeid}: its file does not write out {min(hidden)}")
    item.user_properties.extend(("clause", name) for name in names)
    if selection.needs_reference(item):
        item.user_properties.append((JUDGED_BY, AGREEMENT))
    return set(names)


def _is_whole(config: pytest.Config) -> bool:
    # With a selection by path, keyword or marker, tests of a clause may be missing.
    selections = ("keyword", "markexpr", "lf", "deselect")
    narrowed = any(config.getoption(selection, default=None) for selection in selections)
    roots = {Path(arg).resolve() for arg in config.args}
    return not narrowed and (HERE in roots or HERE.parent in roots)


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, topology: Topology) -> Target:
    """The implementation under test."""
    config = request.config
    return Target(target_of(config), target_map.load(mapping_of(config), PARTS))
