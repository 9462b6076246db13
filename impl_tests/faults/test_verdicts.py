"""The fault harness finds wrong versions of impl, and a seed repeats a fault."""

import gc
import random
import sys
from contextlib import contextmanager

import pytest

from impl_tests.faults.errors import ERRORS
from impl_tests.faults.exceptions import run_exception
from impl_tests.faults.table import Tally
from impl_tests.faults.target import Target
from impl_tests.faults.trial import TrialResult
from impl_tests.faults.verdicts import BAD, VERDICTS, Finding
from impl_tests.samples import run_python
from spec_tests.harness.environment.topology import SIMULATED_DEVICES, not_run

#: impl warns of containers that it cannot rebuild, and pytest of exceptions in ``__del__``.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def target(topology):
    if topology.accelerator != "sim" or topology.distinct < SIMULATED_DEVICES:
        not_run("the faults are injected on four simulated devices")
    return Target("impl")


def draw_findings(target, seeds):
    for seed in seeds:
        yield from run_exception(target, random.Random(f"exception {seed}"))


def finds(target, *verdicts):
    """Return whether one of the first 300 faults has one of ``verdicts``."""
    findings = draw_findings(target, range(300))
    return any(finding.verdict in verdicts for finding in findings)


def test_100_exceptions_have_no_bad_verdict(target):
    bad = [each for each in draw_findings(target, range(100)) if each.verdict in BAD]
    assert not bad


def test_an_error_that_does_not_name_the_replica_is_found(target, monkeypatch):
    def reraise(error, location):
        raise error

    monkeypatch.setattr(target.parallel_apply, "reraise", reraise)
    assert finds(target, "other error")


def test_an_error_that_is_not_raised_is_found(target, monkeypatch):
    run_calls = target.parallel_apply._run_calls

    def lose_errors(calls, modules, *, in_turn):
        outcomes = run_calls(calls, modules, in_turn=in_turn)
        results = [each for each in outcomes if not hasattr(each, "is_interrupt")]
        return [results[0] if hasattr(each, "is_interrupt") else each for each in outcomes]

    monkeypatch.setattr(target.parallel_apply, "_run_calls", lose_errors)
    assert finds(target, "lost", "wrong result")


def test_a_collector_that_stays_off_is_found(target, monkeypatch):
    @contextmanager
    def pause_gc():
        gc.disable()
        yield
        gc.enable()

    monkeypatch.setattr(target.replicate, "pause_gc", pause_gc)
    try:
        assert finds(target, "state left")
    finally:
        gc.enable()


def test_a_wrong_sum_of_gradients_is_found(target, monkeypatch):
    reduce_add_coalesced = target.functions.reduce_add_coalesced

    def double(*args):
        return tuple(2 * each for each in reduce_add_coalesced(*args))

    monkeypatch.setattr(sys.modules["impl.functions"], "reduce_add_coalesced", double)
    assert finds(target, "wrong result")


def test_a_seed_repeats_the_fault(target, capsys):
    first = [*draw_findings(target, range(10))]
    first_text = capsys.readouterr().out
    assert [*draw_findings(target, range(10))] == first
    assert capsys.readouterr().out == first_text


def test_every_exception_can_be_made_and_raised():
    for make in ERRORS.values():
        error, found = make(), None
        try:
            raise error
        except BaseException as raised:  # pytest.raises would read the traceback.
            found = raised
        assert found is error


def test_the_table_counts_verdicts_and_names_the_seed_of_bad_ones():
    tally = Tally()
    findings = [Finding("error", "interrupt"), Finding("lost", "interrupt", "detail")]
    texts = [*tally.add(TrialResult(7, "interrupt", findings, "log", 1.0))]
    assert (tally.bad, tally.injected) == (1, 2)
    assert "--kinds interrupt --seed 7 --count 1" in texts[0]
    assert tally.format().splitlines()[0].split("  ")[-1].strip() == [*VERDICTS][-1]


HANG = """
from impl_tests.faults.target import prepare
from impl_tests.faults.trial import KINDS
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
