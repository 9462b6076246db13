"""Files of benchmarks: the error for an invalid one is one line with the file and the key."""

import json

import pytest

from bench import benchmark_files, floors
from reports.publishing.publish import publish
from reports.tests import samples
from spec_tests.harness.input_files import RefusedError

FLOORS = 'processor = "P"\npython = "3.11"\nthreads = 1\nfloors = {row = 1.5}'


@pytest.fixture
def read(tmp_path):
    """Return a function that reads a text as a kind of file."""
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(samples.make_benchmark_run()))
    texts = {
        "floors": FLOORS,
        "saved-run": saved.read_text(),
        "published": publish([saved], folder=tmp_path).read_text(),
    }
    readers = {
        "floors": floors.load,
        "saved-run": benchmark_files.load,
        "published": benchmark_files.read,
    }

    def write_and_read(kind, old="", new=""):
        (tmp_path / kind).write_text(texts[kind].replace(old, new, 1))
        return readers[kind](tmp_path / kind)

    return write_and_read


@pytest.mark.parametrize("kind", ["floors", "saved-run", "published"])
def test_valid_file_is_accepted_and_html_is_not(read, kind):
    assert read(kind)
    with pytest.raises(RefusedError, match=kind):
        read(kind, new="<html>")


@pytest.mark.parametrize(
    ("kind", "old", "new", "fault"),
    [
        ("floors", "1.5", '"1.5"', "floors.row: a number was expected"),
        ("saved-run", '"q1": 2.0', '"q1": "2"', "benchmarks.0.stats.q1: a number was expected"),
        ("published", '"cpu": "Fast"', '"cpu": 1', "machine.cpu: a text was expected"),
        ("published", '"run": 0', '"run": 1', "there is no run 1"),
    ],
)
def test_refusal_names_the_key_of_a_wrong_value(read, kind, old, new, fault):
    with pytest.raises(RefusedError, match=f"{kind}.*: {fault}"):
        read(kind, old, new)
