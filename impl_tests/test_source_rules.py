"""Rules for impl's source: allowed imports, allowed names and the length of files."""

import sys
from pathlib import Path

import pytest

from impl_tests.samples import run_python
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
#: A program that imports impl while torch.nn.parallel cannot be imported.
WITHOUT_REFERENCE = """
import sys, torch
hidden = [name for name in sys.modules if name.startswith("torch.nn.parallel")]
sys.modules.update(dict.fromkeys(hidden))
import impl
assert impl.DataParallel and impl.comm
"""
#: Ends of attribute names that give the device type.
TYPE_ATTRIBUTES = (".type", ".is_cpu", ".is_cuda", ".is_mps", ".is_xpu", ".is_meta")
#: Source texts of operands with which device types are compared.
TYPE_VALUES = ("-1", "CPU", "torch.device('cpu')", "'cpu'", "'cuda'", "'mps'")


def name_of(path):
    return path.relative_to(ROOT / "impl").as_posix()


@pytest.mark.parametrize("path", IMPL, ids=name_of)
def test_impl_does_not_use_the_reference(path):
    used = [*imported_modules(path), *dotted_names(path)]
    allowed = ("torch.nn.parallel", DDP) if name_of(path) == DDP_USER else ()
    assert not [name for name in used if name.startswith(FORBIDDEN) and name not in allowed]
    assert FORBIDDEN_C_FUNCTIONS.isdisjoint(used)


def test_gradients_imports_only_distributed_data_parallel():
    imported = [name for name in imported_modules(ROOT / "impl" / DDP_USER) if "parallel" in name]
    assert imported == ["torch.nn.parallel", DDP]


def test_importing_impl_starts_no_thread_and_loads_no_optional_module():
    script = """
import sys, threading, impl
assert not {"impl.distributed", "torch._dynamo"} & sys.modules.keys()
assert threading.active_count() == 1
"""
    completed = run_python(script)
    assert completed.returncode == 0, completed.stderr


@pytest.mark.parametrize("path", IMPL, ids=name_of)
def test_only_the_installation_contains_strings_with_names_of_the_reference(path):
    # Code could pass such a string to `import_module`. impl_tests/test_installation.py
    # checks that the installation calls no object of the reference.
    found = [text for text in strings(path) if text.startswith(FORBIDDEN)]
    assert bool(found) == (name_of(path) == "extras/install.py")


@pytest.mark.parametrize("path", IMPL, ids=name_of)
def test_impl_imports_only_torch_and_the_standard_library(path):
    allowed = {"torch", *sys.stdlib_module_names}
    names = imported_modules(path)
    assert not [n for n in names if not n.startswith(".") and n.split(".")[0] not in allowed]


def test_impl_can_be_imported_without_the_reference():
    # torch itself imports torch.nn.parallel, so the program hides it after the import of torch.
    completed = run_python(WITHOUT_REFERENCE)
    assert completed.returncode == 0, completed.stderr


@pytest.mark.parametrize("path", IMPL, ids=name_of)
def test_only_the_device_module_compares_device_types(path):
    found = [name for name in dotted_names(path) if name.endswith(TYPE_ATTRIBUTES)]
    found += [text for value in TYPE_VALUES for text in comparisons_with(path, value)]
    assert bool(found) == (name_of(path) == "_devices.py")


@pytest.mark.parametrize("path", IMPL, ids=name_of)
def test_files_have_at_most_700_lines(path):
    assert len(path.read_text().splitlines()) <= 700
