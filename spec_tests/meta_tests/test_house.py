"""The rules of the house that no linter knows: who may import whom, and sizes."""

from pathlib import Path

import pytest

from spec_tests.harness.source import function_lengths, imported_modules

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = ("comm", "functions", "scatter_gather", "replicate", "parallel_apply", "data_parallel")
#: A room uses those below it.
FLOORS = (
    ("simulator",),
    ("reference",),
    ("harness",),
    ("strategies",),
    (*CHAPTERS, "divergences", "cpp_front_end"),
    ("site",),
    ("conftest", "cli"),
    ("meta_tests",),
)
HEIGHT = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}
#: Implementations, and the other folders of the repository.
FOREIGN = ("impl", "impl_tests", "bench", "reports", "mmcv", "torch_geometric")


def files_of(*folders):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


SUITE = files_of("spec_tests")
CODE = files_of("impl", "impl_tests", "spec_tests", "bench", "reports")
MACHINERY = [path for path in CODE if not path.name.startswith(("test_", "bench_"))]


def path_of(path):
    return str(path.relative_to(ROOT))


def room_of(path):
    """Name the folder of the suite, or the file of its root, that a file belongs to."""
    return path.relative_to(ROOT / "spec_tests").with_suffix("").parts[0]


def rooms_used_by(path):
    """Name the rooms of the suite that a file imports from."""
    parts = [name.split(".") for name in imported_modules(path)]
    return {rest[0] for package, *rest in parts if package == "spec_tests" and rest}


@pytest.mark.parametrize("path", SUITE, ids=path_of)
def test_the_suite_imports_no_implementation(path):
    assert not {name.split(".")[0] for name in imported_modules(path)} & set(FOREIGN)


@pytest.mark.parametrize("path", SUITE, ids=path_of)
def test_rooms_use_their_own_files_and_lower_floors_only(path):
    own = room_of(path)
    upwards = {
        room
        for room in rooms_used_by(path) - {own}
        if HEIGHT[room] >= HEIGHT.get(own, len(FLOORS))
    }
    assert not upwards


def test_every_room_has_its_floor():
    assert {room_of(path) for path in SUITE} - {"__init__"} == set(HEIGHT)


@pytest.mark.parametrize("path", MACHINERY, ids=path_of)
def test_files_are_short_enough_to_read(path):
    limit = 150 if path.name == "conftest.py" else 400 if path.parent.name == "impl" else 250
    assert len(path.read_text().splitlines()) <= limit


@pytest.mark.parametrize("path", CODE, ids=path_of)
def test_functions_are_short_enough_to_read(path):
    assert not [name for name, lines in function_lengths(path) if lines > 50]
