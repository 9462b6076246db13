"""Rules for impl's source: allowed imports, names and device types, and no fragile tuples."""

import ast
import re
import sys
from pathlib import Path

import pytest

from spec_tests.machine.processes import run_program
from spec_tests.tests.python_source import (
    comparisons_with,
    dotted_names,
    imported_modules,
    strings,
)

ROOT = Path(__file__).resolve().parents[1]
IMPL = sorted((ROOT / "impl").rglob("*.py"))
#: Names of torch.nn.parallel (the reference) and of modules that it calls. impl uses none.
FORBIDDEN = ("torch.nn.parallel", "torch.cuda.comm", "torch.cuda.nccl", "torch.nn.DataParallel")
#: A public class that impl does not replace, and the only file of impl that uses it.
DDP, DDP_USER = "torch.nn.parallel.DistributedDataParallel", "distributed/gradients.py"
#: Functions of torch._C that torch.nn.parallel calls. impl does not call them.
FORBIDDEN_C_FUNCTIONS = {
    f"torch._C.{name}"
    for name in (
        "_broadcast",
        "_broadcast_out",
        "_broadcast_coalesced",
        "_scatter",
        "_scatter_out",
        "_gather",
        "_gather_out",
        "_nccl_reduce",
    )
}
#: A program that imports impl while torch.nn.parallel cannot be imported. torch itself imports it,
#: so the program hides it after the import of torch.
IMPORT = """
import sys, threading, torch
hidden = [name for name in sys.modules if name.startswith("torch.nn.parallel")]
sys.modules.update(dict.fromkeys(hidden))
import impl
assert impl.DataParallel and impl.comm
assert not {"impl.distributed", "torch._dynamo"} & sys.modules.keys()
assert threading.active_count() == 1
"""
#: The modules in the order of the table in impl/README.md.
ORDER = [
    name
    for line in (ROOT / "impl" / "README.md").read_text().splitlines()
    if line.startswith(("| `", "| [`"))
    for name in re.findall(r"`([\w.]+)`", line.split("|")[1])
]
#: Ends of attribute names that give the device type.
TYPE_ATTRIBUTES = (".type", ".is_cpu", ".is_cuda", ".is_mps", ".is_xpu", ".is_meta")
#: Source texts of operands with which device types are compared.
TYPE_VALUES = ("-1", "CPU", "torch.device('cpu')", "'cpu'", "'cuda'", "'mps'")


def name_of(path):
    return path.relative_to(ROOT / "impl").as_posix()


def module_of(path):
    """Return the name of a module below ``impl``. All files of ``distributed`` are one module."""
    parts = path.relative_to(ROOT / "impl").with_suffix("").parts
    return parts[0] if parts[0] == "distributed" else ".".join(parts)


def modules_imported_by(path):
    """Return the modules below ``impl`` that a file imports from, without its own."""
    folder = path.relative_to(ROOT / "impl").parts[:-1]
    found = set()
    for name in (name for name in imported_modules(path) if name.startswith(".")):
        above = len(name) - len(name.lstrip(".")) - 1
        full = [*folder[: len(folder) - above], *name.lstrip(".").split(".")]
        found |= {".".join(full[:count]) for count in range(1, len(full) + 1)}
    return (found & {*ORDER}) - {module_of(path)}


@pytest.mark.parametrize("path", IMPL, ids=name_of)
def test_a_module_imports_only_from_modules_above_it_in_the_table(path):
    if path.name != "__init__.py" or path.parent.name == "distributed":
        assert modules_imported_by(path) <= {*ORDER[: ORDER.index(module_of(path))]}


def test_only_one_file_uses_the_reference_and_only_its_public_class():
    used = {
        (name_of(path), name)
        for path in IMPL
        for name in [*imported_modules(path), *dotted_names(path)]
        if name.startswith(FORBIDDEN) or name in FORBIDDEN_C_FUNCTIONS
    }
    assert used == {(DDP_USER, "torch.nn.parallel"), (DDP_USER, DDP)}


def test_impl_needs_no_reference_and_starts_no_thread():
    completed = run_program(IMPORT)
    assert completed.returncode == 0, completed.stderr


def test_only_the_installation_contains_strings_with_names_of_the_reference():
    # Code could pass such a string to `import_module`. impl_tests/extensions/test_install.py
    # checks that the installation calls no object of the reference.
    pairs = ((path, text) for path in IMPL for text in strings(path))
    found = {name_of(path) for path, text in pairs if text.startswith(FORBIDDEN)}
    assert found == {"extras/install.py"}


def test_impl_imports_only_torch_and_the_standard_library():
    names = {name for path in IMPL for name in imported_modules(path) if name[0] != "."}
    assert {name.split(".")[0] for name in names} <= {"torch", *sys.stdlib_module_names}


def test_only_the_device_module_compares_device_types():
    assert {name_of(path) for path in IMPL if any(type_comparisons(path))} == {"_devices.py"}


def type_comparisons(path):
    yield from (name for name in dotted_names(path) if name.endswith(TYPE_ATTRIBUTES))
    for value in TYPE_VALUES:
        yield from comparisons_with(path, value)


def test_no_generator_makes_a_tuple():
    """If a memory profiler lists all objects meanwhile, ``tuple`` fails: python/cpython#59313."""
    trees = [ast.parse(path.read_text("utf-8")) for path in IMPL]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    tuples = [each for each in calls if ast.unparse(each.func) == "tuple"]
    found = [each for each in tuples if ast.GeneratorExp in map(type, each.args)]
    assert [*map(ast.unparse, found)] == []
