"""Delete the calls that order work on the devices, one at a time, and run tests.

``tox -e orderings`` runs this script. The calls are waits, records of streams and switches of
streams, in impl and in spec_tests/cuda_stand_ins (the replacements of CUDA-only functions). The
script also makes blocking copies non-blocking, one at a time. If no test fails, the tests do not
check the ordering that the call or copy causes.
"""

import ast
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from impl_tests.mutation.operators import apply_edit, replace_nodes

__all__ = ["Deletion", "changed_files", "find_deletions", "main"]

ROOT = Path(__file__).resolve().parents[1]
#: Names of functions that order work on devices or select the stream for new work.
ORDERING = frozenset(
    {
        "_restore",
        "record_stream",
        "save_streams",
        "set_current_streams",
        "set_device_index",
        "set_stream",
        "wait_for_grad",
        "wait_stream",
        "with_saved_streams",
    }
)
#: Names of functions that call their second argument on the streams in their first argument.
CALLERS = frozenset({"_call_on", "call_on_stream", "call_on_streams"})
_TESTS_OF_IMPL = (
    "spec_tests/comm/test_scatter_streams.py",
    "spec_tests/parallel_apply/test_thread_state.py",
    "impl_tests/_device/test_device.py",
    "impl_tests/_device/test_interrupts.py",
    "impl_tests/_device/test_saved_streams.py",
    "impl_tests/_comm/test_copy.py",
)
_TESTS_OF_STAND_INS = (
    "spec_tests/cuda_stand_ins/tests/test_streams.py",
    "spec_tests/comm/test_scatter_streams.py",
)
#: For each changed package: the tests to run, besides test_ordering.py of the folders of
#: spec_tests.
TESTS = {"impl": _TESTS_OF_IMPL, "spec_tests/cuda_stand_ins": _TESTS_OF_STAND_INS}
#: For each changed package: the value of --target, the package that the tests check. The CUDA
#: stand-ins are called by torch.nn.parallel.
TARGETS = {"impl": "impl", "spec_tests/cuda_stand_ins": "torch.nn.parallel"}


@dataclass(frozen=True)
class Deletion:
    """A file without one of its calls, or with one of its copies made non-blocking.

    Args:
        package: ``impl`` or ``spec_tests/cuda_stand_ins``.
        path: The file, relative to the repository.
        place: The file, the line and the deleted or changed expression, as text.
        source: The text of the file after the change.
    """

    package: str
    path: Path
    place: str
    source: str


def find_deletions() -> Iterator[Deletion]:
    """Yield all deletions, file by file."""
    for package in TESTS:
        for path in changed_files(package):
            text = path.read_text(encoding="utf-8")
            for node, replacement in _find_calls(ast.parse(text)):
                place = f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
                source = apply_edit(text, replace_nodes(node, node, replacement))
                yield Deletion(package, path.relative_to(ROOT), place, source)


def changed_files(package: str) -> list[Path]:
    """Return the files of a package, without its tests."""
    paths = sorted((ROOT / package).rglob("*.py"))
    return [path for path in paths if "tests" not in path.relative_to(ROOT).parts]


def _find_calls(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Yield the expressions to delete or change, each with its replacement."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(ast.Call() as call) if _is_ordering_call(call) or any(
                map(_is_ordering_call, call.args)
            ):
                yield call, "None"
            case ast.Call(ast.Name(name), [_, function, *arguments]) if name in CALLERS:
                texts = [*map(ast.unparse, arguments)]
                yield node, f"{ast.unparse(function)}({', '.join(texts)})"
            case ast.Return(ast.Tuple(elts=[*_, ast.Call(args=[argument]) as call])) if (
                _is_ordering_call(call)
            ):
                yield call, ast.unparse(argument)
            case ast.keyword(arg="non_blocking", value=value) if not _is_true(value):
                yield value, "True"
            case ast.FunctionDef(decorator_list=decorators):
                yield from (
                    (name, "(lambda f: f)") for name in decorators if _is_ordering_call(name)
                )


def _is_ordering_call(node: ast.expr) -> bool:
    """Return whether ``node`` calls or names a function that orders work."""
    match node:
        case ast.Call(func=function):
            return _is_ordering_call(function)
        case ast.Attribute(ast.Name("current"), "set"):  # of a StreamGuard
            return True
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in ORDERING
    return False


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def is_detected(deletion: Deletion) -> bool:
    """Return whether a test fails on a copy of the repository with the changed file."""
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
        completed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if completed.returncode not in (0, 1):
        raise RuntimeError(completed.stdout + completed.stderr)
    return completed.returncode == 1


def main() -> int:
    """Try all deletions; return 1 if the tests do not detect one of them."""
    survivors = 0
    for deletion in find_deletions():
        detected = is_detected(deletion)
        survivors += not detected
        print("detected" if detected else "SURVIVED", deletion.place, flush=True)
    print(f"{survivors} deletions survived")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
