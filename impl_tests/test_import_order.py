"""Imports between the packages of impl point one way, and take names from package roots only."""

import ast
from pathlib import Path

import pytest

IMPL = Path(__file__).resolve().parents[1] / "impl"
#: Each level imports earlier levels only.
LEVELS = (
    {"_compat"},
    {"_device", "_pytree"},
    {"_legacy_names"},
    {"_comm", "_threads"},
    {"_replica", "comm"},
    {"functions", "parallel_apply"},
    {"_functions", "replicate", "scatter_gather"},
    {"data_parallel"},
    {"distributed"},
)
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
FILES = {
    path.relative_to(IMPL).as_posix(): path
    for path in sorted(IMPL.rglob("*.py"))
    if path != IMPL / "__init__.py"
}


def room_of(file):
    return Path(file).parts[0].removesuffix(".py")


def imports_from_other_rooms(file):
    """Yield the dotted names, below impl, of what a file imports from other packages."""
    depth = len(Path(file).parts)
    for node in ast.walk(ast.parse(FILES[file].read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            yield from [node.module] if node.module else [alias.name for alias in node.names]


def test_every_module_has_a_level():
    assert {room_of(file) for file in FILES} == LEVEL.keys()


@pytest.mark.parametrize("file", FILES)
def test_a_module_imports_lower_levels_only(file):
    level = LEVEL[room_of(file)]
    rooms = {name.split(".")[0] for name in imports_from_other_rooms(file)} - {room_of(file)}
    assert not [room for room in rooms if LEVEL[room] >= level]


@pytest.mark.parametrize("file", FILES)
def test_a_module_imports_from_the_roots_of_packages(file):
    assert not [name for name in imports_from_other_rooms(file) if "." in name]
