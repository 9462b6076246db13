"""impl/fault_results.md shows the published results."""

from impl_tests.faults.page import PAGE, render_page


def test_the_page_is_generated_from_the_published_results():
    assert PAGE.read_text() == render_page()
