"""docs/from_data_parallel/programs.md shows the published results."""

from impl_tests.consumers.programs_page import PAGE, count_results, with_tables


def test_the_tables_show_the_published_results():
    assert with_tables(PAGE.read_text()) == PAGE.read_text()


def test_the_pages_repeat_the_numbers_of_the_results():
    models, right, packages = count_results()
    readme = PAGE.parents[2] / "README.md"
    assert f"[{right} of {models} models]" in readme.read_text()
    assert f"and {packages} packages with impl installed" in readme.read_text()
    assert f"\n{models} small models" in PAGE.read_text()
    assert f"impl trains {right} of them" in PAGE.read_text()
