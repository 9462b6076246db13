"""docs/from_data_parallel/programs.md and the README show the published results."""

from impl_tests.consumers.programs_page import PAGE, count_verdicts, with_tables


def test_the_tables_show_the_published_results():
    assert with_tables(PAGE.read_text()) == PAGE.read_text()


def test_the_readme_repeats_the_numbers_of_the_sweep():
    readme = (PAGE.parents[2] / "README.md").read_text()
    impl, reference = count_verdicts().values()
    assert f"Of [{impl.total()} architectures]" in readme
    assert f"{impl['equal']} are equal" in readme
    assert f"{reference['equal']} with torch.nn.DataParallel" in readme


def test_each_other_verdict_has_a_reason():
    assert "|  |" not in PAGE.read_text().partition("| architecture | result |")[2]
