"""The fixture ``target``, checks of the collected tests, and outcomes of known divergences."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from spec_tests.machine import (
    clauses,
    import_check,
    input_files,
    judge,
    probes,
    register,
    selection,
    target_map,
    time_limit,
    worker_errors,
)
from spec_tests.machine.hooks import capabilities_of, register_of, topology_of
from spec_tests.machine.options import PLUGIN, mapping_of, target_of
from spec_tests.machine.race_check import pytest_runtest_call as pytest_runtest_call
from spec_tests.machine.selection import pytest_collection as pytest_collection
from spec_tests.machine.state_check import pytest_pyfunc_call as pytest_pyfunc_call
from spec_tests.machine.target import PARTS, Target
from spec_tests.machine.topology import Topology
from spec_tests.strategies import supported_layers
from spec_tests.strategies.supported_layers import pytest_report_header as pytest_report_header

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugins of the suite, and select clauses."""
    config.pluginmanager.import_plugin(PLUGIN)
    config.pluginmanager.register(import_check, import_check.__name__)
    config.pluginmanager.register(judge, judge.__name__)
    config.pluginmanager.register(time_limit, time_limit.__name__)
    config.pluginmanager.register(worker_errors, worker_errors.__name__)
    # With --pyargs the main process may not load this file, and then sends nothing.
    found = getattr(config, "workerinput", {}).get("found")
    if found is not None:
        probes.FOUND.update(pickle.loads(found))
    path = register_of(config)
    selection.select_clauses(config, path)
    if path is not None:  # Refuse a wrong file before workers start.
        judge.declare(config, register.load_lacks(path))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send a worker what was found about real devices, and the tests that it leaves out."""
    if topology_of(node.config).accelerator != "sim":
        capabilities_of(node.config)
        supported_layers.find_errors(topology_of(node.config))
    node.workerinput["found"] = pickle.dumps(probes.FOUND)
    node.workerinput["resumed"] = selection.resumed_tests(node.config)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files that contain no id of a clause that ``--clause`` selects."""
    selected = selection.selected_clauses(config)
    if not selected or collection_path.suffix != ".py" or HERE not in collection_path.parents:
        return None
    ids = selection.ids_in(collection_path, selected)
    return None if ids and _is_in_chapter(collection_path) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check that each test names clauses and each clause has tests. Mark and deselect tests."""
    with worker_errors.sent_to_controller(config, items), input_files.usage_errors():
        _check_and_select(config, items)


def _check_and_select(config: pytest.Config, items: list[pytest.Item]) -> None:
    conformance = [item for item in items if _is_in_chapter(item.path)]
    known_clauses = clauses.load()
    named = {
        name for item in conformance for name in selection.check_clauses_of(item, known_clauses)
    }
    whole = _is_whole_suite(config) and not selection.selected_clauses(config)
    if whole:
        _raise_if_any("without a test", set(known_clauses) - named)
        _raise_if_any(
            "tested only by comparison with torch.nn.parallel",
            named - selection.clauses_judged_without_reference(conformance),
        )
    if (path := register_of(config)) is not None:
        records = register.load(path, known_clauses)
        register.require_expects(records)
        judge.expect(conformance, records, HERE, whole=whole)
    if selected := selection.selected_clauses(config):
        others = [item for item in items if not selected & set(clauses.clauses_of_test(item))]
        selection.deselect(config, items, others)
    if done := set(selection.resumed_tests(config)):
        selection.deselect(config, items, [item for item in items if item.nodeid in done])
    selection.interleave(items)


def _raise_if_any(problem: str, ids: set[str]) -> None:
    if ids:
        raise pytest.UsageError(f"clauses {problem}: {', '.join(sorted(ids))}")


def _is_in_chapter(path: Path) -> bool:
    """Return whether the tests of a file check a target. A folder ``tests`` checks the suite."""
    return HERE in path.parents and "tests" not in path.relative_to(HERE).parts


def _is_whole_suite(config: pytest.Config) -> bool:
    # Options that select tests may leave out tests of a clause.
    selections = ("keyword", "markexpr", "lf", "deselect", "own_tests")
    narrowed = any(config.getoption(selection, default=None) for selection in selections)
    roots = {Path(arg).resolve() for arg in config.args}
    return not narrowed and (HERE in roots or HERE.parent in roots)


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, topology: Topology) -> Target:
    """The implementation under test."""
    return Target(target_of(request.config), target_map.load(mapping_of(request.config), PARTS))
