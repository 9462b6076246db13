"""Delete each call that orders work on the devices: ``tox -e orderings``.

The calls are waits, records of streams and switches of streams in impl and in the CUDA stand-ins.
They are deleted one at a time. Each blocking copy is made non-blocking as well. If no test fails,
the tests do not check the ordering at that place.
"""

import ast
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Deletion", "find_deletions", "main"]

ROOT = Path(__file__).resolve().parents[1]
#: Functions that order work, or select the stream on which work is queued.
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
#: The tests to run, by changed package, besides test_ordering.py of each chapter.
TESTS = {"impl": _IMPL, "spec_tests/cuda_stand_ins": _REFERENCE}
#: The target of these tests: torch.nn.parallel calls the stand-ins.
TARGETS = {"impl": "impl", "spec_tests/cuda_stand_ins": "torch.nn.parallel"}


@dataclass(frozen=True)
class Deletion:
    """A deleted call.

    Args:
        package: ``impl`` or ``spec_tests/cuda_stand_ins``.
        path: The file, relative to the repository.
        place: The file, line and text of the call.
        source: The file without the call.
    """

    package: str
    path: Path
    place: str
    source: str


def find_deletions() -> Iterator[Deletion]:
    """Yield all deletions, file by file."""
    for package in TESTS:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for node, replacement in _find_calls(ast.parse(text)):
                place = f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
                source = _replace(text, node, replacement)
                yield Deletion(package, path.relative_to(ROOT), place, source)


def _find_calls(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Yield the expressions to delete, each with its replacement."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(ast.Call() as call) if _is_ordering(call) or any(
                map(_is_ordering, call.args)
            ):
                yield call, "None"
            case ast.With(items=items):
                for item in items:
                    if _is_ordering(item.context_expr):
                        yield item.context_expr, "__import__('contextlib').nullcontext()"
            case ast.Return(ast.Tuple(elts=[*_, ast.Call(args=[argument]) as call])) if (
                _is_ordering(call)
            ):
                yield call, ast.unparse(argument)
            case ast.keyword(arg="non_blocking", value=value) if not _is_true(value):
                yield value, "True"
            case ast.FunctionDef(decorator_list=decorators):
                yield from ((name, "(lambda f: f)") for name in decorators if _is_ordering(name))


def _is_ordering(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=function):
            return _is_ordering(function)
        case ast.Attribute(ast.Name("current"), "close"):  # restores the previous stream
            return True
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in ORDERING
    return False


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _replace(text: str, node: ast.expr, replacement: str) -> str:
    lines = text.splitlines(keepends=True)
    assert node.end_lineno is not None
    before = "".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + "".join(lines[node.end_lineno :])
    return before + replacement + after


def is_detected(deletion: Deletion) -> bool:
    """Return whether a test fails on a copy of the repository without the call."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("impl", "impl_tests", "spec_tests"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, root / name, ignore=ignored)
        for name in ("conftest.py", "pyproject.toml"):
            shutil.copy(ROOT / name, root)
        (root / deletion.path).write_text(deletion.source, encoding="utf-8")
        orderings = sorted(
            path.relative_to(root) for path in root.glob("spec_tests/*/test_ordering.py")
        )
        tests = [*orderings, *map(Path, TESTS[deletion.package])]
        options = ["-q", "-x", "--accelerator=sim", "-p", "no:cacheprovider"]
        options.append(f"--target={TARGETS[deletion.package]}")
        command = [sys.executable, "-m", "pytest", *options, *map(str, tests)]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout + done.stderr)
    return done.returncode == 1


def main() -> int:
    """Try all deletions; return 1 if one survives."""
    survivors = 0
    for deletion in find_deletions():
        detected = is_detected(deletion)
        survivors += not detected
        print("detected" if detected else "SURVIVED", deletion.place, flush=True)
    print(f"{survivors} deletions survived")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
