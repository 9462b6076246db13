"""The pages of the published results, and ``python -m reports``."""

from reports import __main__ as command
from reports.publishing.publish import render
from spec_tests.reporting.tests import samples

ONE = "comm.scatter.slices"


def test_committed_pages_match_the_published_results():
    for path, text in render(command.HERE).items():
        assert path.read_text(encoding="utf-8") == text, "run python -m reports build"


def test_add_command_publishes_a_run_and_builds_the_pages(tmp_path, capsys):
    file = samples.write_verdicts(tmp_path / "sent.jsonl", {ONE: "fail"}, torch="2.12")
    folder = tmp_path / "reports"
    assert command.main(["add", str(file)], folder=folder) == 0
    assert "| theirs 1.0 | 2.12 | sim |" in (folder / "MATRIX.md").read_text(encoding="utf-8")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == str(folder / "results" / "theirs" / "torch-2.12_sim.json")
