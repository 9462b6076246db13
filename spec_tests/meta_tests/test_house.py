"""The rules of the house that no linter knows: who may import whom, and sizes."""

import pytest

from spec_tests.meta_tests.import_order import HEIGHT, ROOT, against_the_arrows, files_of, room_of
from spec_tests.meta_tests.python_source import function_lengths, imported_modules

#: Implementations, and the other folders of the repository.
FOREIGN = ("impl", "impl_tests", "bench", "reports", "mmcv", "torch_geometric")
SUITE = files_of("spec_tests")
CODE = files_of("impl", "impl_tests", "spec_tests", "bench", "reports")
MACHINERY = [path for path in CODE if not path.name.startswith(("test_", "bench_"))]


def path_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SUITE, ids=path_of)
def test_the_suite_imports_no_implementation(path):
    assert not {name.split(".")[0] for name in imported_modules(path)} & set(FOREIGN)


@pytest.mark.parametrize("path", SUITE, ids=path_of)
def test_rooms_use_their_own_files_and_lower_floors_only(path):
    assert not against_the_arrows(path)


@pytest.mark.parametrize("path", SUITE, ids=path_of)
def test_no_room_is_reached_by_a_relative_import(path):
    # It would go round the rule about floors.
    assert not [name for name in imported_modules(path) if name.startswith("..")]


def test_every_room_has_its_floor():
    assert {room_of(path) for path in SUITE} - {"__init__", "harness"} == set(HEIGHT)


@pytest.mark.parametrize("path", MACHINERY, ids=path_of)
def test_files_are_short_enough_to_read(path):
    limit = 150 if path.name == "conftest.py" else 400 if "impl" in path.parts else 250
    assert len(path.read_text().splitlines()) <= limit


@pytest.mark.parametrize("path", CODE, ids=path_of)
def test_functions_are_short_enough_to_read(path):
    assert not [name for name, lines in function_lengths(path) if lines > 50]
