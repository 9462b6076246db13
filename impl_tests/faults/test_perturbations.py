"""The fault harness finds perturbations of impl, and a seed repeats a fault.

``tox -e faults`` runs these tests. The gate does not, because they take minutes.
"""

import pytest

from impl_tests.faults.programs import find_bad_lines

pytestmark = pytest.mark.machinery

#: A perturbation of impl -> the kind of faults to inject, and the verdict that must occur.
PERTURBATIONS = {
    "parallel_apply.parallel_apply text-without-numbers always": ("exception", "other error"),
    "replicate.replicate leaves-device always": ("exception", "state left"),
    "data_parallel.data_parallel gradient-doubled always": ("exception", "wrong result"),
    "data_parallel.DataParallel.forward leaves-device always": ("interrupt", "state left"),
    "data_parallel.data_parallel memory-errors-changed always": ("memory", "other error"),
    "parallel_apply.parallel_apply other-class always": ("thread", "other error"),
    "parallel_apply.parallel_apply interrupts-changed always": ("blocked", "other error"),
}


@pytest.mark.parametrize(("kind", "count"), [("thread", 20), ("blocked", 10)])
def test_some_faults_of_each_other_kind_have_no_bad_verdict(kind, count):
    assert find_bad_lines(kind, count) == []


@pytest.mark.parametrize("perturbation", PERTURBATIONS)
def test_a_perturbation_of_impl_is_found(perturbation):
    kind, wanted = PERTURBATIONS[perturbation]
    lines = find_bad_lines(kind, 300, perturbation, wanted=wanted)
    assert any(line.startswith(wanted) for line in lines)


def test_a_seed_repeats_the_fault():
    perturbation = "replicate.replicate leaves-device always"
    first = find_bad_lines("exception", 300, perturbation, wanted="state left")[-1]
    seed = int(first.split(" ")[2])
    assert find_bad_lines("exception", 1, perturbation, first=seed) == [first]
