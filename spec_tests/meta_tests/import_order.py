"""The packages of the suite in their order, and which of them a file imports."""

from collections.abc import Sequence
from pathlib import Path

from spec_tests.meta_tests.python_source import imported_modules

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = (
    "comm",
    "functions",
    "comm_and_functions",
    "scatter_gather",
    "replicate",
    "parallel_apply",
    "data_parallel",
    "distributed",
)
#: A package imports those above it in this list.
FLOORS = (
    ("simulator",),
    ("cuda_stand_ins",),
    ("harness.traverse",),
    ("harness.environment",),
    ("harness.concurrency",),
    ("harness.compare",),
    ("harness.conformance",),
    ("harness.pytest_plugin",),
    ("oracle",),
    ("strategies",),
    (*CHAPTERS, "divergences", "cpp_front_end"),
    ("site",),
    ("conftest", "cli"),
    ("meta_tests",),
)
HEIGHT = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}


def files_of(*folders: str) -> list[Path]:
    """The Python files of top-level folders."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def room_of(path: Path) -> str:
    """Return the package of the suite, or the file of its root, that a file belongs to."""
    return _room(path.relative_to(ROOT / "spec_tests").with_suffix("").parts)


def rooms_used_by(path: Path) -> set[str]:
    """Return the packages of the suite that a file imports from."""
    parts = [name.split(".") for name in imported_modules(path)]
    rooms = {_room(rest) for package, *rest in parts if package == "spec_tests" and rest}
    return rooms - {"harness"}  # ``from spec_tests.harness import x`` names ``harness.x``, too


def against_the_arrows(path: Path) -> set[str]:
    """Return the packages that a file imports from although they do not come before its own."""
    own = room_of(path)
    height = HEIGHT.get(own, len(FLOORS))
    return {room for room in rooms_used_by(path) - {own} if HEIGHT[room] >= height}


def _room(parts: Sequence[str]) -> str:
    """Return the package that a module belongs to: in ``harness``, the package inside it."""
    if parts[-1] == "__init__":
        parts = parts[:-1] or parts
    return ".".join(parts[: 2 if parts[0] == "harness" else 1])
