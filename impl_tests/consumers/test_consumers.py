"""Packages that use DataParallel compute the same on impl as on torch.nn.parallel."""

import math

import pytest

from impl_tests.consumers.results import result_of, results
from impl_tests.consumers.running import HERE, PROGRAMS, SIDES, run

#: Published losses come from another machine, whose kernels may round otherwise, step by step.
ELSEWHERE = 1e-3


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request):
    """One of the programs."""
    return request.param


@pytest.fixture(scope="module")
def runs(program):
    """The program's record on each side."""
    return {side: run(program, side) for side in SIDES}


def test_every_program_is_run():
    files = (HERE / "programs").glob("[!_]*.py")
    assert sorted(path.stem for path in files) == sorted(PROGRAMS)


def test_each_side_runs_its_own_data_parallel(runs):
    assert {side: each["home"] for side, each in runs.items()} == SIDES


def test_the_weights_move(runs):
    losses = runs["reference"]["losses"]
    assert len(set(losses)) >= 3
    assert all(map(math.isfinite, losses))


def test_losses_are_the_references(runs):
    assert runs["impl"]["losses"] == runs["reference"]["losses"]


def test_weights_are_the_references(runs):
    assert runs["impl"]["weights"] == runs["reference"]["weights"]


def test_the_published_results_are_those_of_this_run(program, runs):
    found = result_of(program, runs["reference"], runs["impl"])
    published = results()[program]
    for side in SIDES:
        assert found[side] == pytest.approx(published[side], rel=ELSEWHERE, abs=ELSEWHERE)
    same = ("package", "what", "largest_difference")
    assert [found[key] for key in same] == [published[key] for key in same]
