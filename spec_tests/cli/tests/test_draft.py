"""The command ``draft``: new registers, and registers that it updates."""

import json
import re
import tomllib
from dataclasses import replace

import pytest

from spec_tests.cli.draft import draft
from spec_tests.cli.main import main
from spec_tests.failure import Fact, Failure
from spec_tests.machine import verdict_file
from spec_tests.machine.verdicts import TestVerdict
from spec_tests.reporting.tests import samples


def verdict(name, fact=None, *, kind="differs"):
    """Return the verdict of a test, which fails with a fact or passes."""
    failure = fact and Failure(kind, (Fact("output", fact),), fact)
    found = "fail" if fact else "pass"
    return TestVerdict(f"spec_tests/a.py::{name}", found, "comm.scatter.slices", failure=failure)


def test_a_draft_has_a_line_for_each_test_and_its_parameters_if_only_some_fail_alike():
    found = {"one[1]": "x", "one[2]": None, "two[1]": '"\x7f"', "three[1]": "x", "three[2]": "y"}
    text = draft([verdict(*each) for each in found.items()])
    records = tomllib.loads(text)["drafted"]
    assert [(*each["expects"], *each["tests"]) for each in records] == [
        ("output: x", "a.py::one[1]"),
        ('output: "\x7f"', "a.py::two"),
        ("output: x", "a.py::three[1]"),
        ("output: y", "a.py::three[2]"),
    ]
    assert len(text.splitlines()) == len(records) + 4


RECORD = """
[[divergence]]
id = "{}"
kind = "target-bug"
clause = "comm.scatter.slices"
tests = {}
expects = ["output: x"]
observed = "x"
"""
OLD_REGISTER = 'lacks = ["replicate"]' + RECORD.format("X-4", ["a.py::one", "a.py::two"])
OLD_REGISTER += RECORD.format("X-5", ["a.py::three"])


@pytest.fixture
def old_register(tmp_path):
    """Write a register of a suite with three tests, and the suite; return the register."""
    (tmp_path / "clauses.toml").write_text('[comm.scatter.slices]\nsays = "s"\nbasis = "law"\n')
    (tmp_path / "a.py").write_text("def one(): ...\ndef two(): ...\ndef three(): ...\n")
    (tmp_path / "old.toml").write_text(OLD_REGISTER)
    return tmp_path / "old.toml"


def draft_again(tests, path):
    """Return the tables of the draft that begins with a register, in the suite of its folder."""
    return tomllib.loads(draft(tests, register_file=path, suite=path.parent))


def test_a_draft_leaves_out_tests_that_the_suite_no_longer_has(old_register, capsys):
    (old_register.parent / "a.py").write_text("def two(): ...\n")
    (kept,) = draft_again([], old_register)["divergence"]
    assert (kept["id"], kept["tests"]) == ("X-4", ["a.py::two"])
    text = "{}: left out, no such test: a.py::{}\n"
    assert capsys.readouterr().err == text.format("X-4", "one") + text.format("X-5", "three")


@pytest.mark.parametrize("has_register", [False, True])
def test_a_draft_keeps_the_records_of_a_register_without_the_tests_that_pass(
    old_register, has_register, capsys
):
    def passing(name):
        stale = verdict(name, "stale", kind="stale-record")
        return stale if has_register else replace(stale, verdict="pass", failure=None)

    tests = [
        replace(verdict("one[1]", "x"), verdict="known"),
        passing("one[2]"),
        replace(verdict("two", "x"), verdict="known"),
        passing("three"),
        verdict("four", "y"),
    ]
    missing = Failure("not-offered", (Fact("not offered", "comm.gather"),), "no comm.gather")
    lacking = TestVerdict("a.py::five", "not-offered", "comm.gather.joined", failure=missing)
    drafted = draft_again([*tests, lacking], old_register)
    assert capsys.readouterr().err == "X-5: left out, because its tests pass\n"
    assert drafted["lacks"] == ["comm.gather", "replicate"]
    (kept,), (added,) = drafted["divergence"], drafted["drafted"]
    assert (kept["id"], kept["tests"]) == ("X-4", ["a.py::one[1]", "a.py::two"])
    assert (added["id"], added["tests"]) == ("X-6", ["a.py::four"])
    assert len(tomllib.loads(draft(tests))["drafted"]) == 1


def test_a_draft_without_records_says_so(old_register):
    old_register.write_text(OLD_REGISTER[: OLD_REGISTER.index("\n")])
    passing = [verdict("one")]
    for path, first in ((None, []), (old_register, ['lacks = ["replicate"]'])):
        text = draft(passing, register_file=path, suite=old_register.parent)
        *tables, last = text.splitlines()
        assert tables == first
        assert last == "# There are no records: no failure of the runs needs one."
    assert "There are no records" not in draft([verdict("one", "x")])


def test_a_draft_moves_a_test_that_fails_otherwise_to_a_new_record(old_register, capsys):
    tests = [
        replace(verdict("one[1]", "x"), verdict="known"),
        verdict("one[2]", "y"),
        verdict("two", "y"),
        replace(verdict("three", "x"), verdict="known"),
    ]
    drafted = draft_again(tests, old_register)
    records = [*drafted["divergence"], *drafted["drafted"]]
    assert [(*each["expects"], *each["tests"]) for each in records] == [
        ("output: x", "a.py::one[1]"),
        ("output: x", "a.py::three"),
        ("output: y", "a.py::one[2]"),
        ("output: y", "a.py::two"),
    ]
    text = "X-4: left out, because it fails with other facts now: a.py::{}\n"
    assert capsys.readouterr().err == text.format("one[2]") + text.format("two")


def test_a_draft_keeps_a_record_of_other_versions(old_register):
    text = old_register.read_text().replace("observed", 'versions = "torch<2"\nobserved')
    old_register.write_text(text)
    drafted = draft_again([verdict("three", "y")], old_register)
    assert [each["id"] for each in drafted["divergence"]] == ["X-4", "X-5"]


def test_a_draft_adds_inherited_tests_that_pass_to_those_that_are_repaired(old_register):
    folder = old_register.parent
    (folder / "registers").mkdir()
    old_register.rename(folder / "registers" / "old.toml")
    own = folder / "own.toml"
    own.write_text('inherits = "old"\nrepaired = ["a.py::three"]\n')
    stale = [verdict(f"one[{case}]", "stale", kind="stale-record") for case in (1, 2)]
    tests = [*stale, verdict("two", "x")]
    drafted = draft_again(tests, own)
    assert drafted["repaired"] == ["a.py::three", "a.py::one"]
    known = replace(verdict("one[3]", "x"), verdict="known")
    drafted = draft_again([*tests, known], own)
    assert drafted["repaired"] == ["a.py::three", "a.py::one[1]", "a.py::one[2]"]
    own.write_text('inherits = "old"\nrepaired = ["a.py::one[1]", "a.py::one[2]"]\n')
    drafted = draft_again([*map(verdict, ("one[1]", "one[2]")), *tests[2:], known], own)
    assert drafted["repaired"] == ["a.py::one[1]", "a.py::one[2]"]


def test_a_draft_gives_a_register_of_an_earlier_suite_the_facts_of_its_tests(old_register, capsys):
    text = re.sub(r"expects = .*\n", "", old_register.read_text())
    old_register.write_text(text)
    tests = [verdict("one", "x"), verdict("two[1]", "y"), verdict("four", "z")]
    drafted = draft_again(tests, old_register)
    (first, second), (added,) = drafted["divergence"], drafted["drafted"]
    assert first["expects"] == ["output: x", "output: y"]
    assert "expects" not in second
    assert added["tests"] == ["a.py::four"]
    assert capsys.readouterr().err == "X-5: no test of this record fails in the runs\n"


def test_a_draft_warns_of_a_run_that_has_not_ended(tmp_path, capsys):
    path = tmp_path / "v.jsonl"
    samples.write_verdicts(path, {"comm.scatter.slices": "fail"}, collected=9)
    assert main(["draft", str(path)]) == 0
    assert "this run has not ended: 8 of 9 tests have no verdict" in capsys.readouterr().err
    path.write_text(path.read_text() + json.dumps(verdict_file.INTERRUPTED))
    assert main(["draft", str(path)]) == 0
    printed = capsys.readouterr()
    assert "the run was interrupted" in printed.err
    assert len(tomllib.loads(printed.out)["drafted"]) == 1
