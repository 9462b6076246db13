"""The rooms of the suite: which stands on which, and what a file uses of them."""

from pathlib import Path

from spec_tests.harness.source import imported_modules

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = ("comm", "functions", "scatter_gather", "replicate", "parallel_apply", "data_parallel")
#: A room uses those below it.
FLOORS = (
    ("simulator",),
    ("reference",),
    ("harness",),
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
    """Name the folder of the suite, or the file of its root, that a file belongs to."""
    return path.relative_to(ROOT / "spec_tests").with_suffix("").parts[0]


def rooms_used_by(path: Path) -> set[str]:
    """Name the rooms of the suite that a file imports from."""
    parts = [name.split(".") for name in imported_modules(path)]
    return {rest[0] for package, *rest in parts if package == "spec_tests" and rest}


def against_the_arrows(path: Path) -> set[str]:
    """Name the rooms that a file imports from though they are not below its own."""
    own = room_of(path)
    height = HEIGHT.get(own, len(FLOORS))
    return {room for room in rooms_used_by(path) - {own} if HEIGHT[room] >= height}
