"""The flips between releases of torch.nn.parallel."""

import pytest

from reports.others import history

CLAUSES = ("comm.scatter.slices", "parallel_apply.lengths")
HISTORY = {
    "1.0.0": dict.fromkeys(CLAUSES, False),
    "1.4.0": {"comm.scatter.slices": True},
    "2.0.1": dict.fromkeys(CLAUSES, True),
}


def test_a_flip_names_the_releases_that_decided_the_clause():
    assert list(history.flips(HISTORY)) == [
        ("comm.scatter.slices", "1.0.0", "1.4.0", True),
        ("parallel_apply.lengths", "1.0.0", "2.0.1", True),
    ]


def test_clauses_of_functions_in_cpp_have_no_first_release():
    assert history.since(HISTORY) == {CLAUSES[0]: "1.4.0", CLAUSES[1]: "2.0.1"}
    passed = {release: dict.fromkeys(CLAUSES, True) for release in HISTORY}
    assert history.since(passed) == {CLAUSES[1]: "1.0.0"}


def test_a_change_that_flips_no_verdict_is_refused():
    with pytest.raises(ValueError, match="has the same verdict before and after"):
        history.format_page(HISTORY)
