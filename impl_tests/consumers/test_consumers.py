"""Packages that use DataParallel compute the same results with impl as with torch.nn.parallel."""

import math

import pytest

from impl_tests.consumers.__main__ import LIBRARIES, PROGRAMS, RESULTS, run, summarize
from impl_tests.consumers.programs_page import read_results

#: Tolerance between published losses and those of this run. Other processors round differently.
PROCESSOR_TOLERANCE = 1e-3


def test_every_program_file_is_in_programs():
    files = (RESULTS.parent / "programs").glob("[!_]*.py")
    assert sorted(path.stem for path in files) == sorted(PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_computes_the_same_with_impl_as_with_the_reference(program):
    runs = {library: run(program, library) for library in LIBRARIES}
    assert {library: runs[library]["wrapper_module"] for library in runs} == LIBRARIES
    losses = runs["reference"]["losses"]
    assert len(set(losses)) >= 3
    assert all(map(math.isfinite, losses))
    assert runs["impl"]["losses"] == losses
    assert runs["impl"]["weights"] == runs["reference"]["weights"]
    found, published = summarize(program, runs), read_results(RESULTS)[program]
    for library in LIBRARIES:
        expected = published.pop(library)
        assert found.pop(library) == pytest.approx(
            expected, rel=PROCESSOR_TOLERANCE, abs=PROCESSOR_TOLERANCE
        )
    assert found == published
