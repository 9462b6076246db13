"""The command ``draft``: new registers, and registers that it updates."""

import tomllib

import pytest

from spec_tests.cli.draft import draft
from spec_tests.cli.main import main
from spec_tests.machine import clauses, known_failures

pytestmark = pytest.mark.slow


def test_a_draft_names_the_parameters_of_a_test_if_only_some_of_them_fail_alike():
    found = {"one[1]": "E: x", "one[2]": None, "two[1]": 'E: "\x7f"', "three[1]": "E: x"}
    found |= {"three[2]": "E: y"}
    tests = [
        {"clause": "comm.scatter.slices", "test": f"spec_tests/a.py::{test}"}
        | ({"verdict": "fail", "differs": differs} if differs else {"verdict": "pass"})
        for test, differs in found.items()
    ]
    records = tomllib.loads(draft(tests))["divergence"]
    assert [(*each["differences"], *each["tests"]) for each in records] == [
        ("E: x", "a.py::one[1]", "a.py::three[1]"),
        ('E: "\x7f"', "a.py::two"),
        ("E: y", "a.py::three[2]"),
    ]
    assert all(each["reason"] for each in records)


def test_a_draft_leaves_out_lives_that_leave_out_recorded_violations():
    known, life = "divergences.DP-1.cpu-devices", "data_parallel.life.backward"
    tests = [
        {"clause": name, "test": f"spec_tests/a.py::{name}", "verdict": "fail", "differs": "E: x"}
        for name in (known, life)
    ]
    (record,) = tomllib.loads(draft(tests))["divergence"]
    assert record["clause"] == known
    assert "--clause data_parallel.life --divergences FILE" in draft(tests)
    (record,) = tomllib.loads(draft(tests[1:]))["divergence"]
    assert record["clause"] == life


OLD_REGISTER = """\
lacks = ["replicate"]

[[divergence]]
id = "X-4"
kind = "target-bug"
clause = "comm.scatter.slices"
tests = ["a.py::one", "a.py::two"]
differences = ["E: x"]
observed = "x"

[[divergence]]
id = "X-5"
kind = "target-bug"
clause = "comm.scatter.slices"
tests = ["a.py::three"]
differences = ["E: x"]
observed = "x"
"""


@pytest.fixture
def old_register(tmp_path, monkeypatch):
    """Write a register of a suite with three tests, and the suite; return the register."""
    monkeypatch.setattr(clauses, "SOURCE", tmp_path)
    (tmp_path / "a.py").write_text("def one(): ...\ndef two(): ...\ndef three(): ...\n")
    (tmp_path / "old.toml").write_text(OLD_REGISTER)
    return tmp_path / "old.toml"


def test_a_draft_leaves_out_tests_that_the_suite_no_longer_has(old_register, capsys):
    (old_register.parent / "a.py").write_text("def two(): ...\n")
    assert main(["draft", "--divergences", str(old_register)]) == 0
    printed = capsys.readouterr()
    (kept,) = tomllib.loads(printed.out)["divergence"]
    assert (kept["id"], kept["tests"]) == ("X-4", ["a.py::two"])
    text = "{}: left out, no such test: a.py::{}\n"
    assert printed.err == text.format("X-4", "one") + text.format("X-5", "three")


def test_a_draft_keeps_the_records_of_a_register_without_the_tests_that_pass(old_register):
    found = {"one[1]": "known", "one[2]": "passes", "two": "known", "three": "passes"}
    found |= {"four": "fail"}
    tests = [
        {"clause": "comm.scatter.slices", "test": f"spec_tests/a.py::{name}"}
        | {"verdict": "known" if verdict == "known" else "fail", "differs": "E: y"}
        | {"difference": known_failures.PASSES if verdict == "passes" else verdict}
        for name, verdict in found.items()
    ]
    lacking = {"clause": "comm.gather.joined", "test": "a.py::five", "verdict": "not-offered"}
    lacking["reason"] = "the target does not define comm.gather"
    drafted = tomllib.loads(draft([*tests, lacking], register_file=old_register))
    assert drafted["lacks"] == ["comm.gather", "replicate"]
    kept, added = drafted["divergence"]
    assert (kept["id"], kept["tests"]) == ("X-4", ["a.py::one[1]", "a.py::two"])
    assert (added["id"], added["tests"]) == ("X-6", ["a.py::four"])
    assert len(tomllib.loads(draft(tests))["divergence"]) == 1
