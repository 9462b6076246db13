"""Rules that no linter checks: which packages a file may import, and lists in pages."""

import configparser
import re

import pytest

from spec_tests import strategies
from spec_tests.harness.pytest_plugin import options
from spec_tests.simulator import FEATURES
from spec_tests.tests.import_order import (
    LEVEL_OF,
    ROOT,
    misplaced_imports,
    package_of,
    python_files,
)
from spec_tests.tests.python_source import imported_modules

#: Packages that the suite must not import: implementations, and other folders of the repository.
FORBIDDEN = ("impl", "impl_tests", "bench", "reports", "mmcv", "torch_geometric")
SUITE = python_files("spec_tests")
TEST_FOLDERS = [path for path in (ROOT / "spec_tests").rglob("tests") if path.is_dir()]


def path_id(path):
    return str(path.relative_to(ROOT))


def test_suite_imports_no_implementation():
    packages = {path_id(path): first_parts(imported_modules(path)) for path in SUITE}
    assert [path for path, names in packages.items() if not names.isdisjoint(FORBIDDEN)] == []


def first_parts(names):
    return {name.split(".")[0] for name in names}


def test_packages_import_packages_of_earlier_levels_only():
    assert [path for path in SUITE if misplaced_imports(path)] == []


def test_imports_from_other_packages_are_absolute():
    # misplaced_imports ignores relative imports.
    found = [(path, name) for path in SUITE for name in imported_modules(path)]
    assert [(path, name) for path, name in found if name.startswith("..")] == []


def test_every_package_has_a_level():
    assert {package_of(path) for path in SUITE} - {"__init__", "harness"} == set(LEVEL_OF)


def test_the_gate_runs_every_folder_of_tests():
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    named = tox["tests"]["folders"].replace("\\", "").split()
    assert {path_id(path) for path in TEST_FOLDERS} <= set(named)


def test_help_and_page_name_each_feature_of_the_simulator():
    # options.py repeats the names, because it may not import torch.
    parser = pytest.Parser(_ispytest=True)
    options.pytest_addoption(parser)
    help_of = {
        name: option.attrs()["help"]
        for group in parser._groups
        for option in group.options
        for name in option.names()
    }
    assert help_of["--without"].partition("repeatable: ")[2].split(", ") == [*FEATURES]
    page = (ROOT / "spec_tests" / "BACK_ENDS.md").read_text()
    named = page.partition("one feature of the simulator off:")[2].partition(".")[0]
    assert re.findall("`(.+?)`", named) == [*FEATURES]


def test_index_of_strategies_is_complete():
    lines = [line for line in strategies.__doc__.splitlines() if line.startswith("* ")]
    indexed = re.findall("``(.+?)``", "\n".join(line.partition(":")[0] for line in lines))
    files = (ROOT / "spec_tests" / "strategies").glob("[!_]*.py")
    assert sorted(indexed) == sorted(path.stem for path in files)
