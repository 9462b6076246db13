"""Which tests run: collects, checks, selects and orders them.

A test file contains the full ids of its clauses. A run of one clause therefore imports only the
files that contain the id of the clause.
"""

import gc
import pickle
from collections.abc import Generator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spec_tests.machine import clauses, probes, register, time_limit, verdicts, workers
from spec_tests.machine.fixtures import capabilities_of, register_of, topology_of
from spec_tests.machine.options import suite_of

_SELECTED = pytest.StashKey[frozenset[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Select clauses, and refuse a wrong register before workers start."""
    if hasattr(config, "workerinput"):
        probes.FOUND.update(pickle.loads(config.workerinput["found"]))
    path = register_of(config)
    _select_clauses(config, path)
    if path is not None:
        config.stash[register.LACKS] = frozenset(register.load_lacks(path))


def _select_clauses(config: pytest.Config, register_path: Path | None) -> None:
    """Store the clauses that ``--clause`` and ``--recorded`` select; none if all are selected."""
    names, specification = config.getoption("--clause"), clauses.of_run(config)
    for name in names:
        if not clauses.matching([name], specification):
            raise pytest.UsageError(f"--clause {clauses.describe_unknown(name, specification)}")
    if config.getoption("--recorded"):
        if register_path is None:
            raise pytest.UsageError("--recorded: the target has no register")
        records = register.load(register_path, specification, suite_of(config) / "registers")
        recorded = dict.fromkeys(name for record in records for name in record.clauses)
        chosen = clauses.matching(names, specification) if names else recorded
        # The metadata of the run have the values of this option.
        config.option.clause = names = [name for name in recorded if name in chosen]
        if not names:
            raise pytest.UsageError("--recorded: the register has no record of these clauses")
    config.stash[_SELECTED] = frozenset(clauses.matching(names, specification))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send a worker what was found about real devices, and the tests that it leaves out."""
    if topology_of(node.config).accelerator != "sim":
        capabilities_of(node.config)
    node.workerinput["found"] = pickle.dumps(probes.FOUND)
    node.workerinput["resumed"] = _resumed_tests(node.config)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files that contain no id of a clause that ``--clause`` selects."""
    selected, suite = config.stash[_SELECTED], suite_of(config)
    if not selected or collection_path.suffix != ".py" or suite not in collection_path.parents:
        return None
    text = _read_text(collection_path)
    has_id = any(name in text for name in selected)
    return None if has_id and _is_in_chapter(collection_path, suite) else True


@cache
def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector, which then ignores what was imported.

    Otherwise the start and the end of each process take a second more.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check that each test names clauses and each clause has tests. Mark and deselect tests."""
    try:
        _check_and_select(config, items)
    except pytest.UsageError as error:
        workers.send_error(config, error)
        items.clear()


def _check_and_select(config: pytest.Config, items: list[pytest.Item]) -> None:
    suite, selected = suite_of(config), config.stash[_SELECTED]
    conformance = [item for item in items if _is_in_chapter(item.path, suite)]
    specification = clauses.of_run(config)
    for item in conformance:
        _check_clauses(item, specification)
    if all_files := _is_whole_suite(config):
        tested = {name for item in conformance for name in clauses.clauses_of_test(item)}
        _raise_if_any("without a test", {*(selected or specification)} - tested)
    if whole := all_files and not selected:
        # A test with the fixture `baselines` also compares with the oracle.
        judged = {
            name
            for item in conformance
            if "reference" not in getattr(item, "fixturenames", ())
            for name in clauses.clauses_of_test(item)
        }
        _raise_if_any("tested only by comparison with torch.nn.parallel", tested - judged)
    if (path := register_of(config)) is not None:
        records = register.load(path, specification, suite / "registers")
        register.require_expects(records)
        all_cases = not _is_narrowed(config)
        register.assign_records(conformance, records, suite, whole=whole, all_cases=all_cases)
    done = set(_resumed_tests(config))
    left_out = [
        item
        for item in items
        if item.nodeid in done or (selected and selected.isdisjoint(clauses.clauses_of_test(item)))
    ]
    config.hook.pytest_deselected(items=left_out)
    kept = {*items}.difference(left_out)
    items[:] = [item for item in items if item in kept]
    _interleave(items)


def _check_clauses(item: pytest.Item, specification: Mapping[str, clauses.Clause]) -> None:
    """Check the clauses of a test, and store them for its report.

    Other tests of a clause that is not selected are not run, so it gets no verdict.
    """
    names, text = clauses.clauses_of_test(item), _read_text(item.path)
    if not names:
        raise pytest.UsageError(f"{item.nodeid} names no clause")
    for name in names:
        if name not in specification:
            raise pytest.UsageError(f"{item.nodeid} names the unknown clause {name}")
        if name != names[0] and not specification[name].facts:
            problem = f"{name} is not its first clause, and needs `facts` in clauses.toml"
            raise pytest.UsageError(f"{item.nodeid}: {problem}")
        if name not in text:
            raise pytest.UsageError(f"{item.nodeid}: its file does not contain the id {name}")
    selected = item.config.stash[_SELECTED] or names
    item.user_properties.extend(
        (verdicts.CLAUSE if name in selected else verdicts.UNSELECTED, name) for name in names
    )


def _raise_if_any(problem: str, ids: set[str]) -> None:
    if ids:
        raise pytest.UsageError(f"clauses {problem}: {', '.join(sorted(ids))}")


def _is_in_chapter(path: Path, suite: Path) -> bool:
    """Return whether the tests of a file check a target. A folder ``tests`` checks the suite."""
    return suite in path.parents and "tests" not in path.relative_to(suite).parts


def _is_whole_suite(config: pytest.Config) -> bool:
    roots = {Path(arg).resolve() for arg in config.args}
    suite = suite_of(config)
    return not _is_narrowed(config) and (suite in roots or suite.parent in roots)


def _is_narrowed(config: pytest.Config) -> bool:
    """Return whether options or node ids may leave out tests of a clause, or cases of a test."""
    selections = ("keyword", "markexpr", "lf", "deselect", "own_tests", "ignore", "ignore_glob")
    given = any(config.getoption(selection, default=None) for selection in selections)
    return given or any("::" in arg for arg in config.args)


def _resumed_tests(config: pytest.Config) -> list[str]:
    """Return the tests whose verdicts ``--resume`` keeps.

    A worker of pytest-xdist that replaces another one gets the same tests, although the file of
    verdicts has become longer.
    """
    if not config.getoption("--resume"):
        return []
    if config.getoption("--verdicts") is None:
        raise pytest.UsageError("--resume needs the file of --verdicts")
    if hasattr(config, "workerinput"):
        tests: list[str] = config.workerinput["resumed"]
        return tests
    recorder: Any = config.pluginmanager.get_plugin("recorder")
    return [test.test for test in recorder.resumed_tests]


def _interleave(items: list[pytest.Item]) -> None:
    """Order tests: the first file of each folder, then the second one of each, and so on.

    So the first minute of a run shows failures of every chapter. Files of `SLOW` come last.
    """
    ranks: dict[Path, dict[Path, int]] = {}
    for item in items:
        files = ranks.setdefault(item.path.parent, {})
        files.setdefault(item.path, len(files))
    items.sort(
        key=lambda item: (item.path.stem in time_limit.SLOW, ranks[item.path.parent][item.path])
    )
