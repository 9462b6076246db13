"""impl's modules import what the table in impl/README.md says, and only from package roots."""

import ast
import re
from pathlib import Path

import pytest

IMPL = Path(__file__).resolve().parents[1] / "impl"
#: The rows of the table: the modules, and the modules that they import beside ``_arguments``.
ROWS = [
    [set(re.findall(r"`([\w.]+)`", cell)) for cell in line.strip("|").split("|")]
    for line in (IMPL / "README.md").read_text().splitlines()
    if line.startswith("| `")
]
FILES = {
    path.relative_to(IMPL).as_posix(): path
    for path in sorted(IMPL.rglob("*.py"))
    if path not in (IMPL / "__init__.py", IMPL / "extras" / "__init__.py")
}


def package_of(file):
    """Return the package or module of the table. Each module of ``extras`` is one of its own."""
    parts = Path(file).with_suffix("").parts
    return ".".join(parts[: 2 if parts[0] == "extras" else 1])


def imports_from_other_packages(file):
    """Yield the names, such as ``_comm.broadcast``, that a file imports from other packages."""
    depth = len(Path(file).parts)
    for node in ast.walk(ast.parse(FILES[file].read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            yield from [node.module] if node.module else [alias.name for alias in node.names]


def packages_imported_by(package):
    files = [file for file in FILES if package_of(file) == package]
    names = {name for file in files for name in imports_from_other_packages(file)}
    names = {name if name.startswith("extras.") else name.split(".")[0] for name in names}
    return names - {package, "_arguments"}


def test_each_module_stands_in_one_row():
    named = [name for modules, _ in ROWS for name in modules]
    assert sorted(named) == sorted({package_of(file) for file in FILES})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(sorted(row[0])))
def test_a_row_lists_the_imports_of_its_modules(row):
    modules, imported = row
    assert set().union(*map(packages_imported_by, modules)) == imported


@pytest.mark.parametrize("index", range(len(ROWS)))
def test_a_row_imports_only_from_rows_above(index):
    above = {name for modules, _ in ROWS[:index] for name in modules}
    assert ROWS[index][1] <= above


@pytest.mark.parametrize("file", FILES)
def test_module_imports_only_from_package_roots(file):
    # `extras` re-exports nothing.
    names = [name for name in imports_from_other_packages(file) if "." in name]
    assert all(name.startswith("extras.") for name in names)
