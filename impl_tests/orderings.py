"""Delete what orders work on the devices, one place at a time: ``tox -e orderings``.

Every wait, every record of a stream and every switch of streams in impl and in the reference's
stand-ins is found in the source and left out, and every copy that may block is told not to; tests
that then pass have proved nothing about it.
"""

import ast
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Deletion", "deletions", "main"]

ROOT = Path(__file__).resolve().parents[1]
#: Calls that order work, or choose the stream that it is queued on.
ORDERING = frozenset(
    {
        "_enter_stream",
        "_restore",
        "record_event",
        "record_stream",
        "save_streams",
        "set_current_streams",
        "set_device_index",
        "set_stream",
        "synchronize",
        "use",
        "use_stream",
        "wait_event",
        "wait_for_grad",
        "wait_stream",
        "with_saved_streams",
    }
)
_IMPL = (
    "spec_tests/comm/test_scatter_streams.py",
    "spec_tests/parallel_apply/test_thread_state.py",
    "impl_tests/_device/test_saved_streams.py",
    "impl_tests/_comm/test_copy.py",
)
_REFERENCE = (
    "spec_tests/meta_tests/test_stand_ins_streams.py",
    "spec_tests/comm/test_scatter_streams.py",
)
#: The tests that must fail, by the package that is changed.
TESTS = {"impl": _IMPL, "spec_tests/cuda_stand_ins": _REFERENCE}
#: What they judge: the stand-ins are what torch.nn.parallel calls.
TARGETS = {"impl": "impl", "spec_tests/cuda_stand_ins": "torch.nn.parallel"}


@dataclass(frozen=True)
class Deletion:
    """One call left out.

    Args:
        package: ``impl`` or ``spec_tests/cuda_stand_ins``.
        path: The file, relative to the repository.
        place: The line and the call.
        source: The file without it.
    """

    package: str
    path: Path
    place: str
    source: str


def deletions() -> Iterator[Deletion]:
    """Every deletion, file by file."""
    for package in TESTS:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for node, replacement in _places(ast.parse(text)):
                place = f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
                source = _replaced(text, node, replacement)
                yield Deletion(package, path.relative_to(ROOT), place, source)


def _places(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """The expressions to leave out, and what stands there instead."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(ast.Call() as call) if _orders(call) or any(map(_orders, call.args)):
                yield call, "None"
            case ast.With(items=items):
                for item in items:
                    if _orders(item.context_expr):
                        yield item.context_expr, "__import__('contextlib').nullcontext()"
            case ast.Return(ast.Tuple(elts=[*_, ast.Call(args=[argument]) as call])) if _orders(
                call
            ):
                yield call, ast.unparse(argument)
            case ast.keyword(arg="non_blocking", value=value) if not _is_true(value):
                yield value, "True"
            case ast.FunctionDef(decorator_list=decorators):
                yield from ((name, "(lambda f: f)") for name in decorators if _orders(name))


def _orders(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=function):
            return _orders(function)
        case ast.Attribute(ast.Name("current"), "close"):  # back to the stream before
            return True
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in ORDERING
    return False


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _replaced(text: str, node: ast.expr, replacement: str) -> str:
    lines = text.splitlines(keepends=True)
    assert node.end_lineno is not None
    before = "".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + "".join(lines[node.end_lineno :])
    return before + replacement + after


def is_noticed(deletion: Deletion) -> bool:
    """Whether a test fails on a copy of the repository without the call."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for name in ("impl", "impl_tests", "spec_tests"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, home / name, ignore=ignored)
        for name in ("conftest.py", "pyproject.toml"):
            shutil.copy(ROOT / name, home)
        (home / deletion.path).write_text(deletion.source, encoding="utf-8")
        orderings = sorted(
            path.relative_to(home) for path in home.glob("spec_tests/*/test_ordering.py")
        )
        tests = [*orderings, *map(Path, TESTS[deletion.package])]
        options = ["-q", "-x", "--accelerator=sim", "-p", "no:cacheprovider"]
        options.append(f"--target={TARGETS[deletion.package]}")
        command = [sys.executable, "-m", "pytest", *options, *map(str, tests)]
        done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout + done.stderr)
    return done.returncode == 1


def main() -> int:
    """Try every deletion; return 1 if no test noticed one."""
    unnoticed = 0
    for deletion in deletions():
        noticed = is_noticed(deletion)
        unnoticed += not noticed
        print("noticed " if noticed else "SURVIVED", deletion.place, flush=True)
    print(f"{unnoticed} deletions that no test notices")
    return int(unnoticed > 0)


if __name__ == "__main__":
    sys.exit(main())
