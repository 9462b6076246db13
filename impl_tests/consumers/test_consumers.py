"""Packages that use DataParallel compute the same on impl as on torch.nn.parallel."""

import math

import pytest

from impl_tests.consumers.results import load_results, summarize
from impl_tests.consumers.running import HERE, LIBRARIES, PROGRAMS, run

#: The tolerance of published losses: kernels of other processors round differently.
PROCESSOR_TOLERANCE = 1e-3


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request):
    """Return one of the programs."""
    return request.param


@pytest.fixture(scope="module")
def runs(program):
    """Return the program's record on each library."""
    return {library: run(program, library) for library in LIBRARIES}


def test_every_program_is_listed():
    files = (HERE / "programs").glob("[!_]*.py")
    assert sorted(path.stem for path in files) == sorted(PROGRAMS)


def test_each_run_uses_the_data_parallel_of_its_library(runs):
    assert {library: it["wrapper_module"] for library, it in runs.items()} == LIBRARIES


def test_losses_change_during_training(runs):
    losses = runs["reference"]["losses"]
    assert len(set(losses)) >= 3
    assert all(map(math.isfinite, losses))


def test_losses_equal_the_reference(runs):
    assert runs["impl"]["losses"] == runs["reference"]["losses"]


def test_weights_equal_the_reference(runs):
    assert runs["impl"]["weights"] == runs["reference"]["weights"]


def test_the_published_results_equal_this_run(program, runs):
    found = summarize(program, runs["reference"], runs["impl"])
    published = load_results()[program]
    for library in LIBRARIES:
        expected = pytest.approx(
            published[library], rel=PROCESSOR_TOLERANCE, abs=PROCESSOR_TOLERANCE
        )
        assert found[library] == expected
    for key in ("package", "description", "largest_difference"):
        assert found[key] == published[key]
