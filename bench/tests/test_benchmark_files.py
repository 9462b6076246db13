"""Files of benchmarks: the error for an invalid one is one line with the file and the key."""

import json

import pytest

from bench import benchmark_files
from bench.tests import samples
from spec_tests.machine.input_files import RefusedError


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"library": "reference"', '"library": 2', r"\$\.benchmarks\[0\]\.extra_info\.library"),
        ("{", "<", "is not JSON"),
    ],
)
def test_only_a_valid_file_is_accepted(tmp_path, old, new, problem):
    file, text = tmp_path / "run.json", json.dumps(samples.make_benchmark_run())
    file.write_text(text)
    assert benchmark_files.load(file)
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(RefusedError, match=rf"run\.json.*{problem}"):
        benchmark_files.load(file)
