"""About 300 faults in impl, the table of verdicts, and processes that hang or die."""

import pytest

from impl_tests.faults.programs import find_bad_lines
from impl_tests.faults.table import Tally
from impl_tests.faults.trial import TrialResult
from impl_tests.faults.verdicts import VERDICTS, Finding
from impl_tests.samples import run_python


@pytest.mark.parametrize(("kind", "count"), [("exception", 60), ("interrupt", 12), ("memory", 12)])
def test_faults_of_each_frequent_kind_have_no_bad_verdict(kind, count):
    assert find_bad_lines(kind, count) == []


def test_the_table_counts_verdicts_and_names_the_seed_of_bad_ones():
    tally = Tally()
    findings = [Finding("error", "interrupt"), Finding("lost", "interrupt", "detail")]
    texts = [*tally.add(TrialResult(7, "interrupt", findings, "log", 1.0))]
    assert (tally.bad, tally.injected) == (1, 2)
    assert "--kinds interrupt --seed 7 --count 1" in texts[0]
    assert tally.format().splitlines()[0].split("  ")[-1].strip() == [*VERDICTS][-1]


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
