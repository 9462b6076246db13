"""Rules that no linter checks: which packages a file may import, and lists in pages."""

import re
import tomllib
from pathlib import Path

import pytest

from spec_tests.failure import PARTS, PLACES, PROPERTIES
from spec_tests.machine.clauses import CHAPTERS
from spec_tests.simulator import FEATURES
from spec_tests.tests.python_source import imported_modules, strings

ROOT = Path(__file__).resolve().parents[2]
#: Packages that the suite must not import, implementations and folders of the repository, and
#: folders that an installation lacks.
FORBIDDEN = {
    "spec_tests": ("impl", "impl_tests", "bench", "reports", "mmcv", "torch_geometric"),
    "bench": ("impl_tests", "reports", "docs"),
}
#: The packages of the suite. A package imports only itself and packages before it; a chapter
#: imports no other chapter.
ORDER = (
    "failure",
    "simulator",
    "cuda_stand_ins",
    "machine",
    "checks",
    "oracle",
    "strategies",
    "reporting",
)
ORDER += ("conftest", "cli", "__init__", "chapters", "tests")
SUITE = sorted((ROOT / "spec_tests").rglob("*.py"))


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_suite_and_benchmarks_import_no_package_that_is_forbidden(folder):
    files = (ROOT / folder).rglob("*.py")
    found = [(str(path), name) for path in files for name in imported_modules(path)]
    assert [each for each in found if each[1].split(".")[0] in FORBIDDEN[folder]] == []


def place_of(parts):
    """Return the place of a module's package in `ORDER`, and the package."""
    package = "tests" if "tests" in parts else parts[0]
    return ORDER.index("chapters" if package in CHAPTERS else package), package


def test_packages_import_themselves_and_packages_before_them_by_absolute_names():
    found = set()
    for path in SUITE:
        place, package = place_of(path.relative_to(ROOT / "spec_tests").with_suffix("").parts)
        names = [*imported_modules(path)]
        found |= {(package, name) for name in names if name.startswith("..")}
        imported = [name.split(".") for name in names]
        others = {place_of(parts) for root, *parts in imported if root == "spec_tests" and parts}
        found |= {(package, name) for other, name in others if other >= place} - {(package,) * 2}
    assert found == set()


def test_machine_names_no_later_package_for_an_import():
    # `import_module` could import a module of such a name.
    named = {
        name.split(".")[1]
        for path in (ROOT / "spec_tests" / "machine").glob("*.py")
        for name in strings(path)
        if re.fullmatch(r"spec_tests\.\w[\w.]*", name)
    }
    # The machine runs the chapter `devices` before the first test, to see faults of the devices.
    assert named <= {"machine", "simulator", "oracle", "devices"}


def test_page_names_each_feature_of_the_simulator():
    page = (ROOT / "spec_tests" / "BACK_ENDS.md").read_text()
    named = page.partition("one feature of the simulator off:")[2].partition(".")[0]
    assert re.findall("`(.+?)`", named) == [*FEATURES]


def test_page_of_registers_explains_the_places_and_properties_of_facts():
    page = (ROOT / "spec_tests" / "registers" / "README.md").read_text()
    tables = re.findall(r"\| (?:property|place) \|.*\n.*\n((?: +\| .*\n)+)", page)
    names = [
        name
        for table in tables
        for row in re.findall(r"^ +\|(.+?)\|", table, re.M)
        for name in re.findall("`(.+?)`", row)
    ]
    assert sorted(names) == sorted((*PLACES, *PARTS, *PROPERTIES))


def test_extras_have_the_packages_of_the_test_environment():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    assert project["dependency-groups"]["test"] == [*extras["suite"], *extras["bench"]]


def test_page_for_authors_of_tests_defines_its_examples():
    page = (ROOT / "spec_tests" / "ADDING_TESTS.md").read_text(encoding="utf-8")
    for example in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(example, {})
