"""The table of perturbations is complete, and the suite notices a sample."""

from argparse import Namespace
from itertools import chain

import pytest

from impl_tests.long_checks.perturbations import __main__, load
from spec_tests.machine import clauses

TABLE = load()
#: The clauses whose perturbations a slow test tries. ``tox -e long -- perturbations`` tries all.
SAMPLE = (
    "comm.scatter.own-device-views",
    "comm.gather.keeps-channels-last",
    "functions.scatter.cpu-input-is-ready",
    "scatter_gather.scatter.named-tuples",
    "devices.copies.layouts",
)


@pytest.fixture
def run_perturbations(run_module):
    return lambda *arguments: run_module("impl_tests.long_checks.perturbations", *arguments)


def test_every_clause_has_one_perturbation():
    named = [*chain(*TABLE.values())]
    assert set(clauses.load()) - set(named) == set(), "clauses without a perturbation"
    assert set(named) - set(clauses.load()) == set(), "unknown clauses"
    assert [name for name in named if named.count(name) > 1] == []


def test_function_and_kind_of_a_perturbation_exist():
    __main__.check_names(TABLE)


@pytest.mark.parametrize(
    "perturbation", ["comm.scatter rotate", "comm.scater rotated", "devices rotated"]
)
def test_a_perturbation_with_an_unknown_function_or_kind_is_refused(perturbation):
    with pytest.raises(SystemExit, match=f"{perturbation}: no "):
        __main__.check_names([perturbation])


def test_a_clause_without_a_perturbation_and_a_test_that_fails_anyway_are_problems(
    tmp_path, capsys, monkeypatch
):
    # All tests fail, also without a perturbation.
    monkeypatch.setattr(__main__, "find_failed", lambda _, names: {*names})
    table = tmp_path / "table.toml"
    table.write_text('"comm.scatter rotated" = ["comm.scatter.slices"]\n')
    names = ["comm.scatter.slices", "comm.gather.joined"]
    options = Namespace(clauses=names, table=table, processes=1)
    assert __main__.check({*names}, options) == 1
    assert capsys.readouterr().out.splitlines() == [
        "comm.gather.joined has no perturbation",
        "[1/2] comm.scatter rotated: caught",
        "[2/2] no perturbation: the tests of comm.scatter.slices fail",
        "2 clauses, 1 perturbation, 2 problems",
    ]


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
