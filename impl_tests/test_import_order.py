"""Each module of impl imports only from modules above it in the table of impl/README.md."""

import ast
import re
from pathlib import Path

import pytest

IMPL = Path(__file__).resolve().parents[1] / "impl"
#: The modules in the order of the table.
ORDER = [
    name
    for line in (IMPL / "README.md").read_text().splitlines()
    if line.startswith(("| `", "| [`"))
    for name in re.findall(r"`([\w.]+)`", line.split("|")[1])
]


def module_name(file):
    """Return the name below ``impl``. All files of ``distributed`` are one module."""
    parts = file.relative_to(IMPL).with_suffix("").parts
    return parts[0] if parts[0] == "distributed" else ".".join(parts)


FILES = {
    file: module_name(file)
    for file in sorted(IMPL.rglob("*.py"))
    if file not in (IMPL / "__init__.py", IMPL / "extras" / "__init__.py")
}


def imported_modules(file):
    """Yield the names below ``impl`` of the modules that a file imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = file.relative_to(IMPL).parts[: -node.level]
            module = ".".join([*folder, *filter(None, [node.module])])
            names = [".".join(filter(None, [module, alias.name])) for alias in node.names]
            yield from [module] if module in FILES.values() else names


def test_each_module_stands_in_the_table_once():
    assert sorted(ORDER) == sorted(set(FILES.values()))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(IMPL).as_posix())
def test_a_module_imports_only_from_modules_above(file):
    above = ORDER[: ORDER.index(FILES[file])]
    imported = {
        name.split(".")[0] if name.startswith("distributed") else name
        for name in imported_modules(file)
    }
    assert imported - {FILES[file]} <= {*above}
