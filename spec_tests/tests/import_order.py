"""The order of the suite's packages, and the packages that a file imports."""

from collections.abc import Sequence
from pathlib import Path

from spec_tests.harness.conformance.clauses import CHAPTERS
from spec_tests.tests.python_source import imported_modules

ROOT = Path(__file__).resolve().parents[2]
#: A package imports only packages of earlier levels.
LEVELS = (
    ("simulator",),
    ("cuda_stand_ins",),
    ("harness.traverse", "harness.input_files", "harness.expressions", "harness.shared_options"),
    ("harness.environment",),
    ("harness.concurrency",),
    ("harness.compare",),
    ("harness.conformance",),
    ("harness.plain_programs",),
    ("harness.pytest_plugin",),
    ("oracle",),
    ("strategies",),
    CHAPTERS,
    ("site",),
    ("conftest", "cli"),
    ("tests",),
)
LEVEL_OF = {package: level for level, packages in enumerate(LEVELS) for package in packages}


def python_files(*folders: str) -> list[Path]:
    """Return the Python files below the given folders of the repository."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def package_of(path: Path) -> str:
    """Return the suite's package that contains ``path``. A top-level module is its own package."""
    return _package_name(path.relative_to(ROOT / "spec_tests").with_suffix("").parts)


def packages_imported_by(path: Path) -> set[str]:
    """Return the suite's packages that a file imports from."""
    names = [name.split(".") for name in imported_modules(path)]
    packages = {_package_name(parts) for root, *parts in names if root == "spec_tests" and parts}
    # For ``from spec_tests.harness import x``, imported_modules() yields the names ``harness`` and
    # ``harness.x``. The folder ``harness`` only groups packages, so its name is removed.
    return packages - {"harness"}


def misplaced_imports(path: Path) -> set[str]:
    """Return the imported packages whose level is not earlier than the file's."""
    package = package_of(path)
    level = LEVEL_OF.get(package, len(LEVELS))
    return {name for name in packages_imported_by(path) - {package} if LEVEL_OF[name] >= level}


def _package_name(module_parts: Sequence[str]) -> str:
    """Return the package of a module: ``comm``, or two names as in ``harness.compare``.

    All folders ``tests`` count as one package.
    """
    if "tests" in module_parts:
        return "tests"
    if module_parts[-1] == "__init__":
        module_parts = module_parts[:-1] or module_parts
    return ".".join(module_parts[: 2 if module_parts[0] == "harness" else 1])
