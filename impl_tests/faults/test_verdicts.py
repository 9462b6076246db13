"""Faults in impl, the tables of verdicts, and processes that hang or die."""

import pytest

from impl_tests.faults.__main__ import describe_bad
from impl_tests.faults.programs import find_bad_lines
from impl_tests.faults.table import Tally, format_counts
from impl_tests.faults.trial import TrialResult
from impl_tests.faults.verdicts import Finding
from impl_tests.samples import run_python


@pytest.mark.parametrize(("kind", "count"), [("exception", 60), ("interrupt", 12), ("memory", 12)])
def test_faults_of_each_frequent_kind_have_no_bad_verdict(kind, count):
    assert find_bad_lines(kind, count) == []


def test_the_text_of_a_bad_verdict_names_the_seed():
    findings = [Finding("error", "interrupt"), Finding("lost", "interrupt", "detail")]
    (text,) = describe_bad(TrialResult(7, "interrupt", findings, "log", 1.0))
    assert "--kinds interrupt --seed 7 --count 1" in text


def test_the_table_has_the_counts_of_each_kind_and_all_bad_verdicts():
    tally = Tally()
    for verdict in ("fine", "wrong", "wrong"):
        tally.add("interrupt", verdict)
    assert tally.total(["wrong", "worse"]) == 2
    meanings = {"fine": "1", "finer": "2", "wrong": "3", "worse": "4"}
    assert format_counts({"impl": tally.counts}, meanings, ["wrong", "worse"]).splitlines() == [
        "| fault     | library | fine | wrong | worse |",
        "| --------- | ------- | ---- | ----- | ----- |",
        "| interrupt | impl    | 1    | 2     | 0     |",
        "",
        "The columns:",
        "",
        "* *fine*: 1",
        "* *wrong* (bad): 3",
        "* *worse* (bad): 4",
    ]


HANG = """
from impl_tests.faults.target import prepare
from impl_tests.faults.trial import KINDS, run_trials
from impl_tests.faults.verdicts import Finding
import os, threading

def {name}(target, rng):
    {body}
    yield Finding("right", "x")

KINDS["{name}"] = {name}
for result in run_trials(prepare("impl"), ["{name}"], [1], processes=1, limit=2):
    print(result.findings[0].verdict, "in {name}" in result.findings[0].detail)
"""


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [("hang", "threading.Event().wait()", "hang True"), ("crash", "os.abort()", "crash True")],
)
def test_a_process_that_hangs_or_dies_is_found_with_its_stacks(name, body, text):
    completed = run_python(HANG.format(name=name, body=body))
    assert completed.stdout.strip() == text, completed.stderr
