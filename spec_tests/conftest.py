"""The implementation under test, and the rules of collection."""

from collections.abc import Generator
from pathlib import Path

import pytest

from spec_tests.harness import asked, clauses, failure, refused, register, target_map
from spec_tests.harness.options import PLUGIN, mapping_of, target_of
from spec_tests.harness.racing import pytest_runtest_call as pytest_runtest_call  # a hook
from spec_tests.harness.target import PARTS, Target
from spec_tests.harness.topology import Topology
from spec_tests.harness.verdicts import AGREEMENT, BY, judged_alone, read

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Load the rest of the suite, which nobody else has where no target is named."""
    config.pluginmanager.import_plugin(PLUGIN)
    config.pluginmanager.register(refused, refused.__name__)
    asked.keep(config, clauses.load())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file that holds no test of the clauses asked for."""
    wanted = asked.clauses(config)
    if not wanted or collection_path.suffix != ".py" or HERE not in collection_path.parents:
        return None
    judges = _is_conformance(collection_path) and asked.written(collection_path, wanted)
    return None if judges else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse tests and clauses that do not name each other; mark the known divergences."""
    with refused.handed_on(config, items):
        _choose(config, items)


def _choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    conformance = [item for item in items if _is_conformance(item.path)]
    known = clauses.load()
    named: set[str] = set()
    for item in conformance:
        named |= _clauses_of(item, known)
    whole = _is_whole(config) and not asked.clauses(config)
    if whole:
        _refuse("without a test", set(known) - named)
        _refuse("judged by agreement alone", named - _judged(conformance))
    records = register.for_target(target_of(config), config.getoption("--divergences"))
    register.mark(conformance, records, HERE, whole=whole)
    target_map.load(mapping_of(config), PARTS)  # a wrong one is refused before the first test
    wanted = asked.clauses(config)
    if wanted:
        _leave_out(config, items, [each for each in items if not wanted & set(clauses.of(each))])
    if config.getoption("--resume"):
        done = {test["test"] for test in read(_verdicts_file(config))}
        _leave_out(config, items, [item for item in items if item.nodeid in done])


def pytest_report_collectionfinish(items: list[pytest.Item]) -> str:
    """Say how many of the chosen clauses torch.nn.parallel alone can judge."""
    conformance = [item for item in items if _is_conformance(item.path)]
    named = {name for item in conformance for name in clauses.of(item)}
    return judged_alone(sorted(named - _judged(conformance))) if named else ""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Take no crash for a known difference; say in words what failed."""
    report = yield
    failure.of_skip(item, call, report)
    register.judge(item, call, report)
    if report.failed or hasattr(report, "wasxfail"):
        report.user_properties.extend(failure.describe(item, call))
    return report


def _refuse(what: str, found: set[str]) -> None:
    if found:
        raise pytest.UsageError(f"clauses {what}: {', '.join(sorted(found))}")


def _judged(items: list[pytest.Item]) -> set[str]:
    """The clauses of which a test says what is right without torch.nn.parallel."""
    return {name for item in items if not _asks_the_reference(item) for name in clauses.of(item)}


def _verdicts_file(config: pytest.Config) -> Path:
    found = config.getoption("--verdicts")
    if found is None:
        raise pytest.UsageError("--resume needs the file of --verdicts")
    return Path(found)


def _leave_out(
    config: pytest.Config, items: list[pytest.Item], dropped: list[pytest.Item]
) -> None:
    config.hook.pytest_deselected(items=dropped)
    without = set(dropped)
    items[:] = [item for item in items if item not in without]


def _is_conformance(path: Path) -> bool:
    """Tell whether the tests of a file judge a target: those of the suite itself do not."""
    return HERE in path.parents and HERE / "meta_tests" not in path.parents


def _clauses_of(item: pytest.Item, known: dict[str, clauses.Clause]) -> set[str]:
    names = clauses.of(item)
    if not names:
        raise pytest.UsageError(f"{item.nodeid} names no clause")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise pytest.UsageError(f"{item.nodeid} names the unknown clause {unknown[0]}")
    hidden = set(names) - asked.written(item.path, frozenset(names))
    if hidden:
        raise pytest.UsageError(f"{item.nodeid}: its file does not write out {min(hidden)}")
    item.user_properties.extend(("clause", name) for name in names)
    if _asks_the_reference(item):
        item.user_properties.append((BY, AGREEMENT))
    return set(names)


def _asks_the_reference(item: pytest.Item) -> bool:
    """Tell whether a test can say nothing without torch.nn.parallel: it uses that fixture.

    The fixture ``answers`` has it too, but the oracle first.
    """
    return "reference" in getattr(item, "fixturenames", ())


def _is_whole(config: pytest.Config) -> bool:
    # A selection by path, keyword or marker cannot tell whether a clause lacks a test.
    selections = ("keyword", "markexpr", "lf", "deselect")
    narrowed = any(config.getoption(selection, default=None) for selection in selections)
    roots = {Path(arg).resolve() for arg in config.args}
    return not narrowed and (HERE in roots or HERE.parent in roots)


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, topology: Topology) -> Target:
    """The implementation under test."""
    config = request.config
    return Target(target_of(config), target_map.load(mapping_of(config), PARTS))
