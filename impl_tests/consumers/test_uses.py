"""Uses of packages with a wrapper have the published results."""

import pytest

from impl_tests.consumers.programs_page import read_results
from impl_tests.consumers.uses.__main__ import PROGRAMS, RESULTS, run_all


@pytest.mark.parametrize("program", PROGRAMS)
def test_uses_of_a_package_have_the_published_results(program):
    published = {
        use: result
        for use, result in read_results(RESULTS).items()
        if result["package"].startswith(f"{PROGRAMS[program]} ")
    }
    assert run_all(program) == published


def test_no_published_result_is_wrong_with_impl():
    results = read_results(RESULTS).values()
    assert results
    assert [use for use in results if "wrong" in (use["cpu"], use["sim"])] == []
