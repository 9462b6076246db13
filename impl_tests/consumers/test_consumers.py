"""Packages that use DataParallel compute the same results with impl as with torch.nn.parallel."""

import math

import pytest

from impl_tests.consumers.results import LIBRARIES, PROGRAMS, RESULTS, run, summarize
from impl_tests.published import read_results

#: Tolerance between published losses and those of this run. Other processors round differently.
PROCESSOR_TOLERANCE = 1e-3


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request):
    """Return one of the programs."""
    return request.param


@pytest.fixture(scope="module")
def runs(program):
    """Return the program's results with each library."""
    return {library: run(program, library) for library in LIBRARIES}


def test_every_program_file_is_in_programs():
    files = (RESULTS.parent / "programs").glob("[!_]*.py")
    assert sorted(path.stem for path in files) == sorted(PROGRAMS)


def test_each_run_uses_the_data_parallel_of_its_library(runs):
    assert {library: runs[library]["wrapper_module"] for library in runs} == LIBRARIES


def test_losses_change_during_training(runs):
    losses = runs["reference"]["losses"]
    assert len(set(losses)) >= 3
    assert all(map(math.isfinite, losses))


def test_losses_with_impl_equal_those_with_the_reference(runs):
    assert runs["impl"]["losses"] == runs["reference"]["losses"]


def test_weights_with_impl_equal_the_references(runs):
    assert runs["impl"]["weights"] == runs["reference"]["weights"]


def test_the_published_results_equal_this_run(program, runs):
    found = summarize(program, runs["reference"], runs["impl"])
    published = read_results(RESULTS)[program]
    for library in LIBRARIES:
        expected = pytest.approx(
            published[library], rel=PROCESSOR_TOLERANCE, abs=PROCESSOR_TOLERANCE
        )
        assert found[library] == expected
    for key in ("package", "description", "largest_difference"):
        assert found[key] == published[key]
