"""Packages that use DataParallel compute the same results with impl as with torch.nn.parallel."""

import math

import pytest

from impl_tests.consumers.__main__ import LIBRARIES, PROGRAMS, run


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_computes_the_same_with_impl_as_with_the_reference(program):
    runs = {library: run(program, library) for library in LIBRARIES}
    assert {library: runs[library]["wrapper_module"] for library in runs} == LIBRARIES
    losses = runs["reference"]["losses"]
    assert len(set(losses)) >= 3
    assert all(map(math.isfinite, losses))
    assert runs["impl"]["losses"] == losses
    assert runs["impl"]["weights"] == runs["reference"]["weights"]
