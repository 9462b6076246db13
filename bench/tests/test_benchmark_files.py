"""Files of benchmarks: the error for an invalid one is one line with the file and the key."""

import json

import pytest

from bench import benchmark_files, floors
from bench.tests import samples
from spec_tests.machine.input_files import RefusedError

FLOORS = 'processor = "P"\npython = "3.11"\nthreads = 1\nfloors = {row = 1.5}'
READERS = {
    "floors": (floors.load, FLOORS),
    "saved-run": (benchmark_files.load, json.dumps(samples.make_benchmark_run())),
}


@pytest.mark.parametrize(
    ("kind", "old", "new", "problem"),
    [
        ("floors", "1.5", '"1.5"', "Expected `float`, got `str`"),
        ("floors", FLOORS, "<html>", "is not TOML"),
        ("saved-run", '"q1": 2.0', '"q1": "2"', r"\$\.benchmarks\[0\]\.stats\.q1"),
        ("saved-run", "{", "<", "is not JSON"),
    ],
)
def test_only_a_valid_file_is_accepted(tmp_path, kind, old, new, problem):
    read, text = READERS[kind]
    (tmp_path / kind).write_text(text)
    assert read(tmp_path / kind)
    (tmp_path / kind).write_text(text.replace(old, new, 1))
    with pytest.raises(RefusedError, match=f"{kind}.*{problem}"):
        read(tmp_path / kind)
