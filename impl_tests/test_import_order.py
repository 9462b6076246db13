"""impl's packages import only from packages of earlier levels, and only from package roots."""

import ast
from pathlib import Path

import pytest

IMPL = Path(__file__).resolve().parents[1] / "impl"
#: impl's packages and modules. A package imports only from packages of earlier levels.
LEVELS = (
    {"_arguments"},
    {"_compat", "_pytree"},
    {"_device"},
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


def package_of(file):
    return Path(file).parts[0].removesuffix(".py")


def imports_from_other_packages(file):
    """Yield the names, such as ``_comm.broadcast``, that a file imports from other packages."""
    depth = len(Path(file).parts)
    for node in ast.walk(ast.parse(FILES[file].read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            yield from [node.module] if node.module else [alias.name for alias in node.names]


def test_every_module_has_a_level():
    assert {package_of(file) for file in FILES} == LEVEL.keys()


@pytest.mark.parametrize("file", FILES)
def test_module_imports_only_from_earlier_levels(file):
    level = LEVEL[package_of(file)]
    names = {name.split(".")[0] for name in imports_from_other_packages(file)}
    assert not [name for name in names - {package_of(file)} if LEVEL[name] >= level]


@pytest.mark.parametrize("file", FILES)
def test_module_imports_only_from_package_roots(file):
    assert not [name for name in imports_from_other_packages(file) if "." in name]
