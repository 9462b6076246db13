"""The table of perturbations is complete, and the suite notices a sample."""

import pytest

from impl_tests.weekly.perturbations import DEVICES, Perturbation, load, replacement
from impl_tests.weekly.perturbations.kinds import KINDS
from spec_tests import simulator
from spec_tests.harness.conformance import clauses

TABLE = load()
#: The clauses whose perturbations each test run tries. ``tox -e weekly -- perturbations`` tries
#: all.
SAMPLE = (
    "comm.scatter.own-device-views",
    "comm.gather.keeps-channels-last",
    "functions.scatter.cpu-input-is-ready",
    "scatter_gather.scatter.named-tuples",
    "devices.copies.layouts",
)


@pytest.fixture
def run_perturbations(run_module):
    """Return a function that runs the program with the given arguments."""
    return lambda *arguments: run_module("impl_tests.weekly.perturbations", *arguments)


def test_every_clause_has_a_perturbation():
    assert TABLE.keys() == clauses.load().keys()


def test_function_kind_and_arguments_of_a_perturbation_exist():
    assert [str(each) for each in TABLE.values() if not exists(each)] == []


def exists(perturbation):
    if perturbation.function == DEVICES:
        return perturbation.kind in simulator.FAULTS
    arguments = replacement.signature_of(perturbation.function).parameters
    named = {fact.partition(":")[0] for fact in perturbation.guard if ":" in fact}
    return perturbation.kind.partition(":")[0] in KINDS and named <= arguments.keys()


def test_a_line_of_two_words_is_refused():
    with pytest.raises(ValueError, match="function kind guard"):
        Perturbation.parse("comm.scatter cloned")


@pytest.mark.slow
def test_suite_notices_a_sample_of_perturbations(run_perturbations):
    run = run_perturbations(*SAMPLE)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(SAMPLE)} clauses" in run.stdout
    assert "0 problems" in run.stdout


@pytest.mark.slow
def test_a_perturbation_that_changes_nothing_is_a_problem(run_perturbations, tmp_path):
    table = tmp_path / "table.toml"
    table.write_text('[clauses]\n"comm.scatter.slices" = "comm.scatter cloned dim:has-empty"\n')
    run = run_perturbations("--table", str(table), "comm.scatter.slices")
    assert run.returncode == 1, run.stdout + run.stderr
    assert "SURVIVED comm.scatter.slices" in run.stdout
