"""impl/drop-in.md shows the published results."""

from impl_tests import drop_in_page


def test_the_page_is_generated_from_the_published_results():
    assert drop_in_page.PAGE.read_text() == drop_in_page.render_page()


def test_readme_repeats_the_numbers_of_the_drop_in_page():
    readme = drop_in_page.PAGE.parents[1] / "README.md"
    assert drop_in_page.format_link() in readme.read_text()
