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

from spec_tests.machine import (
    clauses,
    input_files,
    probes,
    register,
    time_limit,
    verdicts,
    workers,
)
from spec_tests.machine.fixtures import capabilities_of, register_of, topology_of
from spec_tests.machine.options import suite_of

_SELECTED = pytest.StashKey[frozenset[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Select clauses, and refuse a wrong register before workers start."""
    # With --pyargs the main process may not load this file, and then sends nothing.
    findings = getattr(config, "workerinput", {}).get("found")
    if findings is not None:
        probes.FOUND.update(pickle.loads(findings))
    path = register_of(config)
    select_clauses(config, path)
    if path is not None:
        config.stash[register.DECLARED] = frozenset(register.load_lacks(path))


def select_clauses(config: pytest.Config, register_path: Path | None) -> None:
    """Store the clauses that ``--clause`` and ``--recorded`` select.

    Raises:
        pytest.UsageError: a value of ``--clause`` is no chapter, and no beginning of an id; or the
            target has no register for ``--recorded``.
    """
    names, known_clauses = config.getoption("--clause"), clauses.of_run(config)
    if config.getoption("--recorded"):
        if register_path is None:
            raise pytest.UsageError("--recorded: the target has no register")
        records = register.load(register_path, folder=suite_of(config) / "registers")
        recorded = (name for record in records for name in record.clauses)
        # The metadata of the run have the values of this option.
        config.option.clause = names = [*names, *dict.fromkeys(recorded)]
    unknown = clauses.describe_unknown(names, known_clauses)
    if unknown is not None:
        raise pytest.UsageError(f"--clause {unknown}")
    config.stash[_SELECTED] = frozenset(clauses.matching(names, known_clauses))


def selected_clauses(config: pytest.Config) -> frozenset[str]:
    """Return the ids of the selected clauses; empty if all are."""
    return config.stash[_SELECTED]


def ids_in(path: Path, ids: frozenset[str]) -> frozenset[str]:
    """Return those clause ids of ``ids`` that the text of a file contains."""
    text = _read_text(path)
    return frozenset(clause_id for clause_id in ids if clause_id in text)


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


def clauses_judged_without_reference(items: list[pytest.Item]) -> set[str]:
    """Return the clauses with a test that does not need torch.nn.parallel."""
    return {
        name
        for item in items
        if not needs_reference(item)
        for name in clauses.clauses_of_test(item)
    }


def resumed_tests(config: pytest.Config) -> list[str]:
    """Return the tests whose verdicts ``--resume`` keeps.

    A worker of pytest-xdist that replaces another one gets the same tests, although the file of
    verdicts has become longer.

    Raises:
        pytest.UsageError: ``--verdicts`` is not given.
    """
    if not config.getoption("--resume"):
        return []
    if config.getoption("--verdicts") is None:
        raise pytest.UsageError("--resume needs the file of --verdicts")
    if hasattr(config, "workerinput"):
        tests: list[str] = config.workerinput["resumed"]
        return tests
    log: Any = config.pluginmanager.get_plugin("verdicts")
    return [test.test for test in log.resumed_tests]


def deselect(config: pytest.Config, items: list[pytest.Item], unwanted: list[pytest.Item]) -> None:
    """Remove the ``unwanted`` tests from ``items`` and report them to pytest."""
    config.hook.pytest_deselected(items=unwanted)
    without = set(unwanted)
    items[:] = [item for item in items if item not in without]


def interleave(items: list[pytest.Item]) -> None:
    """Order tests: the first file of each folder, then the second one of each, and so on.

    So the first minute of a run shows failures of every chapter. Files of `SLOW` come last.
    """
    ranks: dict[Path, dict[Path, int]] = {}
    for item in items:
        files = ranks.setdefault(item.path.parent, {})
        files.setdefault(item.path, len(files))

    def key(item: pytest.Item) -> tuple[bool, int]:
        return item.path.stem in time_limit.SLOW, ranks[item.path.parent][item.path]

    items.sort(key=key)


def needs_reference(item: pytest.Item) -> bool:
    """Return whether a test compares only with torch.nn.parallel (fixture ``reference``).

    A test with the fixture ``baselines`` also compares with the oracle.
    """
    return "reference" in getattr(item, "fixturenames", ())


def check_clauses_of(item: pytest.Item, known_clauses: Mapping[str, clauses.Clause]) -> set[str]:
    """Return the clauses of a test, and store the selected ones for its report.

    Other tests of a clause that is not selected are not run, so it gets no verdict.

    Raises:
        pytest.UsageError: A clause is unknown, or the test cannot decide it.
    """
    names = clauses.clauses_of_test(item)
    if not names:
        raise pytest.UsageError(f"{item.nodeid} names no clause")
    unknown = [name for name in names if name not in known_clauses]
    if unknown:
        raise pytest.UsageError(f"{item.nodeid} names the unknown clause {unknown[0]}")
    without = [name for name in names[1:] if not known_clauses[name].facts]
    if without:
        text = f"{without[0]} is not its first clause, and needs `facts` in clauses.toml"
        raise pytest.UsageError(f"{item.nodeid}: {text}")
    absent = set(names) - ids_in(item.path, frozenset(names))
    if absent:
        raise pytest.UsageError(f"{item.nodeid}: its file does not contain the id {min(absent)}")
    selected = selected_clauses(item.config) or names
    item.user_properties.extend(
        (verdicts.CLAUSE if name in selected else verdicts.UNSELECTED, name) for name in names
    )
    return set(names)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send a worker what was found about real devices, and the tests that it leaves out."""
    if topology_of(node.config).accelerator != "sim":
        capabilities_of(node.config)
    node.workerinput["found"] = pickle.dumps(probes.FOUND)
    node.workerinput["resumed"] = resumed_tests(node.config)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files that contain no id of a clause that ``--clause`` selects."""
    selected = selected_clauses(config)
    suite = suite_of(config)
    if not selected or collection_path.suffix != ".py" or suite not in collection_path.parents:
        return None
    ids = ids_in(collection_path, selected)
    return None if ids and _is_in_chapter(collection_path, suite) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check that each test names clauses and each clause has tests. Mark and deselect tests."""
    with workers.sent_to_controller(config, items), input_files.usage_errors():
        _check_and_select(config, items)


def _check_and_select(config: pytest.Config, items: list[pytest.Item]) -> None:
    suite = suite_of(config)
    conformance = [item for item in items if _is_in_chapter(item.path, suite)]
    known_clauses = clauses.of_run(config)
    named = {name for item in conformance for name in check_clauses_of(item, known_clauses)}
    selected = selected_clauses(config)
    if all_files := _is_whole_suite(config):
        _raise_if_any("without a test", {*(selected or known_clauses)} - named)
    if whole := all_files and not selected:
        _raise_if_any(
            "tested only by comparison with torch.nn.parallel",
            named - clauses_judged_without_reference(conformance),
        )
    if (path := register_of(config)) is not None:
        records = register.load(path, known_clauses, suite / "registers")
        register.require_expects(records)
        register.assign_records(conformance, records, suite, whole=whole)
    if selected:
        others = [item for item in items if not selected & set(clauses.clauses_of_test(item))]
        deselect(config, items, others)
    if done := set(resumed_tests(config)):
        deselect(config, items, [item for item in items if item.nodeid in done])
    interleave(items)


def _raise_if_any(problem: str, ids: set[str]) -> None:
    if ids:
        raise pytest.UsageError(f"clauses {problem}: {', '.join(sorted(ids))}")


def _is_in_chapter(path: Path, suite: Path) -> bool:
    """Return whether the tests of a file check a target. A folder ``tests`` checks the suite."""
    return suite in path.parents and "tests" not in path.relative_to(suite).parts


def _is_whole_suite(config: pytest.Config) -> bool:
    # Options that select tests may leave out tests of a clause.
    selections = ("keyword", "markexpr", "lf", "deselect", "own_tests")
    narrowed = any(config.getoption(selection, default=None) for selection in selections)
    roots = {Path(arg).resolve() for arg in config.args}
    suite = suite_of(config)
    return not narrowed and (suite in roots or suite.parent in roots)
