"""The boundaries of impl: what it may import and touch, and how long its files may be."""

import subprocess
import sys
from pathlib import Path

import pytest

from spec_tests.meta_tests.python_source import (
    compared_with,
    dotted_names,
    imported_modules,
    strings,
)

ROOT = Path(__file__).resolve().parents[1]
IMPL = sorted((ROOT / "impl").rglob("*.py"))
#: The reference and the entry points below it: impl is written without them.
FORBIDDEN = ("torch.nn.parallel", "torch.cuda.comm", "torch.cuda.nccl", "torch.nn.DataParallel")
#: Public, and none of the parts that impl implements; the one module that needs it.
ENGINE, ITS_USER = "torch.nn.parallel.DistributedDataParallel", "distributed/gradients.py"
PRIVATE = ("_broadcast", "_broadcast_out", "_broadcast_coalesced", "_scatter", "_gather")
PRIVATE = (*PRIVATE, "_scatter_out", "_gather_out", "_nccl_reduce")
WITHOUT_THE_REFERENCE = """
import sys, torch
hidden = [name for name in sys.modules if name.startswith("torch.nn.parallel")]
sys.modules.update(dict.fromkeys(hidden))
import impl
assert impl.DataParallel and impl.comm
"""
#: The attributes of devices and tensors that tell a device's kind.
ASKING = (".type", ".is_cpu", ".is_cuda", ".is_mps", ".is_xpu", ".is_meta")
#: What a device, or its text, would be compared with to tell its kind.
KINDS = ("-1", "CPU", "torch.device('cpu')", "'cpu'", "'cuda'", "'mps'")


def name_of(path):
    return path.relative_to(ROOT / "impl").as_posix()


@pytest.mark.parametrize("path", IMPL, ids=name_of)
def test_impl_never_touches_the_reference(path):
    used = [*imported_modules(path), *dotted_names(path)]
    allowed = ("torch.nn.parallel", ENGINE) if name_of(path) == ITS_USER else ()
    assert not [name for name in used if name.startswith(FORBIDDEN) and name not in allowed]
    assert not [name for name in used if name in {f"torch._C.{private}" for private in PRIVATE}]


def test_one_module_takes_one_name_from_beside_the_reference():
    taken = [name for name in imported_modules(ROOT / "impl" / ITS_USER) if "parallel" in name]
    assert taken == ["torch.nn.parallel", ENGINE]


def test_importing_impl_loads_no_processes():
    script = "import sys, impl; assert 'impl.distributed' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


@pytest.mark.parametrize("path", IMPL, ids=name_of)
def test_impl_names_the_reference_only_where_it_takes_its_place(path):
    # A name that is data could be imported as well. The one module that holds such names replaces
    # what they mean; impl_tests/_compat/test_installation.py shows that it calls nothing of it.
    named = [text for text in strings(path) if text.startswith(FORBIDDEN)]
    assert bool(named) == (name_of(path) == "_compat/installation.py")


@pytest.mark.parametrize("path", IMPL, ids=name_of)
def test_impl_imports_torch_the_standard_library_and_itself_only(path):
    allowed = {"torch", *sys.stdlib_module_names}
    names = imported_modules(path)
    assert not [n for n in names if not n.startswith(".") and n.split(".")[0] not in allowed]


def test_impl_works_where_the_reference_cannot_be_imported():
    # torch itself loads torch.nn.parallel; impl must work when it is not there to be found.
    subprocess.run([sys.executable, "-c", WITHOUT_THE_REFERENCE], cwd=ROOT, check=True)


@pytest.mark.parametrize("path", IMPL, ids=name_of)
def test_only_one_module_compares_device_types(path):
    asked = [name for name in dotted_names(path) if name.endswith(ASKING)]
    asked += [text for kind in KINDS for text in compared_with(path, kind)]
    assert bool(asked) == (name_of(path) == "_device/device.py")


@pytest.mark.parametrize("path", IMPL, ids=name_of)
def test_files_are_short_enough_to_read(path):
    assert len(path.read_text().splitlines()) <= 400
