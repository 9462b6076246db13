"""impl/drop-in.md shows the published results."""

from impl_tests import drop_in_page


def test_the_page_is_generated_from_the_published_results():
    assert drop_in_page.PAGE.read_text() == drop_in_page.render_page()


def test_readme_repeats_the_numbers_of_the_drop_in_page():
    readme = drop_in_page.PAGE.parents[1] / "README.md"
    assert drop_in_page.format_link() in readme.read_text()


def test_the_page_has_a_row_for_every_program_and_model():
    rows = [line for line in drop_in_page.render_page().splitlines() if line.startswith("| ")]
    published = [drop_in_page._read_results(folder) for folder in ("consumers", "models")]
    header_rows = 2
    assert len(rows) == header_rows + sum(map(len, published))
