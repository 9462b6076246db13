"""Files that users supply: the error for an invalid one is one line with the file and the key."""

import json

import pytest

from spec_tests.machine import clauses, register, verdict_file
from spec_tests.machine.input_files import RefusedError
from spec_tests.machine.target import load_map
from spec_tests.reporting import published_runs
from spec_tests.reporting.tests import samples

REGISTER = """
lacks = ["comm"]
titles = {X = "t"}
[[divergence]]
id = "X"
kind = "fix"
clause = "comm.scatter.slices"
observed = "o"
tests = ["a.py::test"]
expects = ["output: strides"]
"""
FAILURE = {"kind": "error", "facts": [["output", "values"]], "text": "d"}
PUBLISHED_RUN = {
    "run": {**samples.HEADER, "hardware": "sim"},
    "pass": {"comm": ["comm.a"]},
    "not-offered": {},
    "not-run": {"reason": ["comm.b"]},
    "tests": [{"clause": "comm.c", "test": "t", "verdict": "fail", "failure": FAILURE}],
}
HEADER_LINE = json.dumps({"run": samples.HEADER})
VERDICT_LINE = '{"test": "t", "verdict": "fail", "clause": "a.b"}'


def load_register(path):
    """Read a register with each function that reads registers; return the records."""
    register.load_lacks(path)
    return register.load(path)


def load_target_map(path):
    return load_map([str(path)])


#: For each kind of file: the function that reads it, and a valid text.
READERS = {
    "register": (load_register, REGISTER),
    "target-map": (load_target_map, 'functions = {Gather = "torch:add"}\ncomm = "json"'),
    "clauses": (clauses.load, '[comm.one]\nsays = "s"\nbasis = "law"'),
    "published-run": (published_runs.read_published, json.dumps(PUBLISHED_RUN)),
    "verdicts": (verdict_file.read, VERDICT_LINE),
    "run": (verdict_file.read_run, f"{HEADER_LINE}\n{VERDICT_LINE}"),
}


def find_refusal(read, path):
    """Return the text of the error that a reader raises. It is one line that names the file."""
    with pytest.raises((RefusedError, pytest.UsageError)) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("reader", READERS)
def test_valid_file_is_accepted(tmp_path, reader):
    read, text = READERS[reader]
    (tmp_path / "file").write_text(text)
    assert read(tmp_path / "file")


@pytest.mark.parametrize("content", [b"<html>", b"\xff\xfe"], ids=["html", "no UTF-8"])
@pytest.mark.parametrize("reader", READERS)
def test_file_of_another_format_is_refused(tmp_path, reader, content):
    (tmp_path / "file").write_bytes(content)
    find_refusal(READERS[reader][0], tmp_path / "file")


@pytest.mark.parametrize(
    ("reader", "old", "new", "problem"),
    [
        ("register", '["comm"]', "1", "got `int` - at `$.lacks`"),
        ("register", '"t"', "1", "got `int` - at `$.titles[...]`"),
        ("register", '"o"', "1", "divergence X: Expected `str`, got `int` - at `$.observed`"),
        (
            "register",
            'tests = ["a.py::test"]',
            "",
            "divergence X: Object missing required field `tests`",
        ),
        ("target-map", '"json"', "1", "Expected `str | object`, got `int`"),
        ("clauses", '"s"', "1", "clause comm.one: Expected `str`, got `int` - at `$.says`"),
        ("clauses", '"law"', '"law"\nfacts = ["stride"]', "clause comm.one: 'stride' in `facts`"),
        ("clauses", '"law"', '"law"\nfacts = ["input: x"]', "clause comm.one: 'input: x'"),
        ("clauses", '"law"', '"law"\nfacts = ["inputs: dtype"]', "comm.one: 'inputs: dtype'"),
        ("clauses", '"law"', '"law"\nraises = ["no class"]', "comm.one: 'no class' in `raises`"),
        ("published-run", '"format": 2', '"format": 3', "run is of a later suite"),
        ("published-run", '"fail"', '"failed"', "test of comm.c: Invalid enum value"),
        ("published-run", '"comm.a"', '"a"', "'a' is not the id of a clause"),
        ("verdicts", '"t"', "[]", "line 1: Expected `str`, got `array` - at `$.test`"),
        ("verdicts", "a.b", "<script>", "line 1: '<script>' is not the id of a clause"),
        ("run", VERDICT_LINE, "", "contains no verdicts"),
        ("run", HEADER_LINE, "", "contains 0 headers of runs, not one"),
        ("run", HEADER_LINE, f"{HEADER_LINE}\n" * 2, "contains 2 headers of runs, not one"),
    ],
)
def test_refusal_names_the_key_of_a_wrong_value(tmp_path, reader, old, new, problem):
    read, text = READERS[reader]
    (tmp_path / "file").write_text(text.replace(old, new))
    assert problem in find_refusal(read, tmp_path / "file")
