"""The rules of the house that no linter knows: boundaries, sizes, names."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMPL = sorted((ROOT / "impl").rglob("*.py"))
SUITE = sorted([*(ROOT / "spec_tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")])
#: The reference and the entry points below it: impl is written without them.
FORBIDDEN = ("torch.nn.parallel", "torch.cuda.comm", "torch.cuda.nccl", "torch.nn.DataParallel")
PRIVATE = ("_broadcast", "_broadcast_out", "_broadcast_coalesced", "_scatter", "_gather")
PRIVATE = (*PRIVATE, "_scatter_out", "_gather_out", "_nccl_reduce")
WITHOUT_THE_REFERENCE = """
import sys, torch
hidden = [name for name in sys.modules if name.startswith("torch.nn.parallel")]
sys.modules.update(dict.fromkeys(hidden))
import impl
assert impl.DataParallel and impl.comm
"""
name_of = "{0.name}".format


def _imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def _dotted(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node)


@pytest.mark.parametrize("path", IMPL, ids=name_of)
def test_impl_never_touches_the_reference(path):
    tree = ast.parse(path.read_text())
    used = [*_imports(tree), *_dotted(tree)]
    assert not [name for name in used if name.startswith(FORBIDDEN)]
    assert not [name for name in used if name in {f"torch._C.{private}" for private in PRIVATE}]


@pytest.mark.parametrize("path", IMPL, ids=name_of)
def test_impl_imports_torch_the_standard_library_and_itself_only(path):
    allowed = {"torch", *sys.stdlib_module_names}
    names = _imports(ast.parse(path.read_text()))
    assert not [n for n in names if not n.startswith(".") and n.split(".")[0] not in allowed]


def test_impl_works_where_the_reference_cannot_be_imported():
    # torch itself loads torch.nn.parallel; impl must work when it is not there to be found.
    subprocess.run([sys.executable, "-c", WITHOUT_THE_REFERENCE], cwd=ROOT, check=True)


def test_only_meta_tests_and_bench_import_impl():
    meta = ROOT / "spec_tests" / "meta_tests"
    others = [path for path in SUITE if meta not in path.parents and "bench" not in path.parts]
    guilty = [
        path.name
        for path in others
        if any(name.split(".")[0] == "impl" for name in _imports(ast.parse(path.read_text())))
    ]
    assert not guilty


@pytest.mark.parametrize("path", [*IMPL, *SUITE], ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_short_enough_to_read(path):
    limit = {"conftest.py": 150}.get(path.name, 400 if path in IMPL else 250)
    assert len(path.read_text().splitlines()) <= limit


@pytest.mark.parametrize("path", [*IMPL, *SUITE], ids=lambda p: str(p.relative_to(ROOT)))
def test_functions_are_short_enough_to_read(path):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, functions)]
    assert not [function.name for function in found if _length(function) > 50]


def _length(function):
    """Lines of the body, its docstring left out."""
    documented = ast.get_docstring(function) is not None
    body = function.body[documented:]
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0
