"""The table of perturbations is complete, and the suite notices a sample."""

from itertools import chain

import pytest

from impl_tests.long_checks.perturbations import DEVICES, load, replacement
from impl_tests.long_checks.perturbations.kinds import KINDS
from spec_tests import simulator
from spec_tests.machine import clauses

TABLE = load()
#: The clauses whose perturbations each test run tries. ``tox -e long -- perturbations`` tries
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
    return lambda *arguments: run_module("impl_tests.long_checks.perturbations", *arguments)


def test_every_clause_has_one_perturbation():
    assert sorted(chain(*TABLE.values())) == sorted(clauses.load())


def test_function_and_kind_of_a_perturbation_exist():
    assert [perturbation for perturbation in TABLE if not exists(perturbation)] == []


def exists(perturbation):
    function, kind = perturbation.split()
    if function == DEVICES:
        return kind in simulator.FAULTS
    return replacement.signature_of(function) and kind.partition(":")[0] in KINDS


@pytest.mark.slow
def test_suite_notices_a_sample_of_perturbations(run_perturbations):
    run = run_perturbations(*SAMPLE)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(SAMPLE)} clauses" in run.stdout
    assert "0 problems" in run.stdout


@pytest.mark.slow
def test_a_perturbation_that_changes_nothing_is_a_problem(run_perturbations, tmp_path):
    table = tmp_path / "table.toml"
    table.write_text('"comm.scatter other-signature" = ["comm.scatter.slices"]\n')
    run = run_perturbations("--table", str(table), "comm.scatter.slices")
    assert run.returncode == 1, run.stdout + run.stderr
    assert "SURVIVED comm.scatter.slices" in run.stdout
