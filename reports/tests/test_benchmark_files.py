"""Files of benchmarks: a file that is not valid is refused with one sentence that names it."""

import pytest

from bench import benchmark_files, floors, saved_runs
from spec_tests.harness.tests import wrong_files

QUARTILES = {"q1": 1.0, "median": 1.0, "q3": 1.0}
TIMES = {
    "group": "g",
    "extra_info": {"library": "impl", "pairs": QUARTILES, "peak_bytes": 1},
    "stats": {**QUARTILES, "rounds": 5},
}
RUN = {
    "datetime": "2026-01-01",
    "commit_info": {"id": "abc", "dirty": False},
    "machine_info": {
        "cpu": {"brand_raw": "P", "count": 2},
        **{"python_version": "3.11.7", "torch": "2.13.0", "devices": ["sim:0"], "threads": 1},
    },
    "benchmarks": [{"fullname": "f", **TIMES}],
}
PUBLISHED = {
    "report": {"target": "impl", "hardware": "sim"},
    "machine": {"cpu": "P", "cores": 2, "torch": "2", "python_version": "3", "devices": ["sim:0"]},
    "runs": [{"datetime": "2026-01-01", "commit": "abc", "dirty": False}],
    "rows": [{"run": 0, **TIMES}],
}
MACHINE = {"processor": "P", "python": "3.11", "threads": 1, "floors": {"row": 1.5}}
#: For each kind of file: the function that reads it, and the value of a valid file.
READERS = {
    "floors": (floors.load, {"machine": [MACHINE]}),
    "saved-run": (saved_runs.load, RUN),
    "published": (benchmark_files.read, PUBLISHED),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def write(path, reader, value):
    path.write_text(wrong_files.to_text(value, toml=reader == "floors"))


@pytest.mark.parametrize("reader", READERS)
def test_valid_file_is_accepted(path, reader):
    read, value = READERS[reader]
    write(path, reader, value)
    assert read(path)


@pytest.mark.parametrize("content", ["<html></html>", "[]", "null", "{", "[" * 100_000])
@pytest.mark.parametrize("reader", READERS)
def test_file_with_other_contents_is_refused(path, reader, content):
    path.write_text(content)
    text = wrong_files.error_text(READERS[reader][0], path)
    assert text.startswith(str(path))
    assert wrong_files.is_short_line(text)


@pytest.mark.parametrize("reader", READERS)
def test_value_of_a_wrong_type_is_refused_in_every_place(path, reader):
    read, value = READERS[reader]
    for change, wrong in wrong_files.with_one_wrong_value(value):
        write(path, reader, wrong)
        assert wrong_files.is_short_line(wrong_files.error_text(read, path) or "\0"), change


@pytest.mark.parametrize("number", [-1.0, float("inf"), 1e300])
def test_floor_out_of_range_is_refused(path, number):
    machine = {**MACHINE, "floors": {"row": number}}
    write(path, "floors", {"machine": [machine]})
    assert wrong_files.error_text(floors.load, path).startswith(str(path))
