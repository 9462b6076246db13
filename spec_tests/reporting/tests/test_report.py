"""The page of `parallel-conformance report`: its content, its links, and refused files."""

import json
import re
from dataclasses import replace

import pytest

from spec_tests.cli import report
from spec_tests.cli.main import main
from spec_tests.failure import Fact, Failure
from spec_tests.machine import clauses
from spec_tests.reporting.tests import samples
from spec_tests.reporting.tests.page_reader import read_page

ONE, TWO, THREE = "comm.scatter.slices", "comm.scatter.zero-sizes", "replicate.one-per-device"
VERDICTS = {ONE: "fail", TWO: "known", THREE: "not-run"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Change to a folder, which has also the published runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "PUBLISHED", (tmp_path / "reports",))


@pytest.fixture
def write_page(tmp_path):
    """Return a function that writes the page of files."""

    def write(*files):
        assert main(["report", *map(str, files)]) == 0
        return tmp_path / "report.html"

    return write


@pytest.fixture
def file(tmp_path):
    """Return a file of verdicts of the target "theirs"."""
    return samples.write_verdicts(tmp_path / "v.jsonl", VERDICTS)


def _section(page, anchor):
    """Return the part of a page about one clause that fails or is known."""
    text = page.read_text()
    return text[text.index(f'id="{anchor}"') :].partition("</section>")[0]


@pytest.mark.parametrize("name", ["v", "matrix", ONE])
def test_page_needs_no_other_file_and_its_links_lead_to_its_parts(write_page, tmp_path, name):
    file = samples.write_verdicts(tmp_path / f"{name}.jsonl", VERDICTS)
    samples.publish_run(tmp_path / "reports", VERDICTS, target="torch.nn.parallel")
    page = read_page(write_page(file))
    assert page.loaded == ["data:,"]
    assert len(page.ids) == len(set(page.ids))
    anchors = {link for link in page.links if link.startswith("#")}
    assert {f"#{name}--{each}" for each in VERDICTS} <= anchors
    assert anchors <= {f"#{each}" for each in page.ids}


def test_page_shows_the_difference_the_call_and_the_command_of_a_failure(write_page, file):
    section = _section(write_page(file), f"v--{ONE}")
    assert clauses.load()[ONE].says in section
    assert f"call(&#39;{ONE}&#39;)" in section
    assert f"{ONE} differs" in section
    assert "parallel-conformance run theirs --accelerator=sim -- -k test_it" in section


def test_page_lists_the_causes_of_failures_with_their_clauses(write_page, tmp_path):
    error = Failure("error", (Fact("error", "TypeError: scatter"),), "TypeError: scatter() got 4")
    bare = Failure("assert", (Fact("assert", "x == y"),), "assert [5] == [6]")
    failures = {ONE: error, TWO: bare, THREE: replace(error, text="TypeError: scatter() got 3")}
    texts = {ONE: error.text, TWO: f"comm.scatter: {bare.text}", THREE: error.text}
    file = samples.write_verdicts(tmp_path / "v.jsonl", failures)
    text = write_page(file).read_text()
    causes = re.findall(r'<li>(\d+) clauses?: <a href="#(.*?)">(.*?)</a>', text)
    assert [cause for _, _, cause in causes] == [texts[ONE], texts[TWO]]
    assert [count for count, _, _ in causes] == ["2", "1"]
    first, second = (text.index(f'id="{anchor}"') for _, anchor, _ in causes)
    place_of = {name: text.index(f'<section class="why" id="v--{name}"') for name in texts}
    assert first < place_of[ONE] < place_of[THREE] < second < place_of[TWO]


@pytest.mark.parametrize(
    ("fact", "words"),
    [("RuntimeError: chunk expects at least a", ", too"), ("KeyError: x", " in another way")],
)
def test_page_says_which_clauses_the_reference_violates_and_has_them_last(
    write_page, tmp_path, fact, words
):
    also = "divergences.SG-4.scalars-are-copied"
    failure = Failure("error", (Fact("error", fact),), fact)
    file = samples.write_verdicts(tmp_path / "v.jsonl", {also: failure, ONE: "fail"})
    page = write_page(file)
    assert f"torch.nn.parallel violates it{words}." in _section(page, f"v--{also}")
    assert "torch.nn.parallel violates it" not in _section(page, f"v--{ONE}")
    text = page.read_text()
    assert text.index(f'id="v--{ONE}"') < text.index(f'id="v--{also}"')


def test_page_of_an_interrupted_run_says_how_many_clauses_have_a_verdict(
    write_page, tmp_path, capsys
):
    suite = clauses.suite_version(clauses.load())
    file = samples.write_verdicts(tmp_path / "v.jsonl", VERDICTS, suite=suite)
    text = write_page(file).read_text()
    claim = f"suite {clauses.VERSION} is not decided: 2 of "
    assert claim in text
    assert claim in capsys.readouterr().out
    chapters = re.findall(r'<tr><th scope="row">(\w+)</th><td>', text)
    assert chapters == ["comm", "replicate"]


def test_page_lists_the_clauses_that_were_not_run_by_their_reason(write_page, tmp_path):
    file = samples.write_verdicts(tmp_path / "v.jsonl", dict.fromkeys((ONE, TWO), "not-run"))
    text = write_page(file).read_text()
    listed = text[text.index("needs two devices") :].partition("</ul>")[0]
    assert text.count("needs two devices") == 1
    assert re.findall('<li id="v--(.*?)">', listed) == [ONE, TWO]


def test_matrix_of_the_page_has_the_runs_in_the_files_and_those_of_the_reference(
    write_page, file, tmp_path
):
    reference = {"target": "torch.nn.parallel", "version": ""}
    samples.publish_run(tmp_path / "reports", {ONE: "pass", TWO: "known"}, **reference)
    samples.publish_run(tmp_path / "reports", {ONE: "pass"}, target="other-package")
    text = write_page(file).read_text()
    assert "other-package" not in text
    row = re.search(rf'<tr id="{ONE}">.*?</tr>', text, re.S)[0]
    assert re.findall(r'aria-label="(.*?)"', row) == ["1 fail", "pass"]
    row = re.search(rf'<tr id="{THREE}">.*?</tr>', text, re.S)[0]
    assert "<td></td>" in row


def _make_hostile(value):
    """Return ``value`` with `samples.HOSTILE` in place of every text, also in dicts and lists."""
    if isinstance(value, dict):
        kept = ("clause", "verdict", "facts", "kind", "torch")
        return {key: each if key in kept else _make_hostile(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_make_hostile(each) for each in value]
    return samples.HOSTILE if isinstance(value, str) else value


def test_page_escapes_every_text_from_a_file(write_page, file):
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines = [_make_hostile(line) for line in lines]
    names = ("target", "accelerator", "date", "command", "version", "python", "suite")
    lines[0]["run"] |= dict.fromkeys(names, samples.HOSTILE)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = read_page(write_page(file))
    assert page.tags.count("script") == 1
    assert page.tags.count("title") == 1
    assert not [name for name in page.attributes if name.startswith("on")]
    assert page.text.count(samples.HOSTILE) > 10


@pytest.mark.parametrize("name", ["v.jsonl", "thesis.html"])
def test_file_that_is_no_page_of_a_report_is_not_replaced(file, tmp_path, capsys, name):
    if name != file.name:
        tmp_path.joinpath(name).write_text("<html>years of work</html>")
    before = tmp_path.joinpath(name).read_text()
    assert main(["report", str(file), "--to", str(tmp_path / name)]) == 4
    assert "is no page of a report" in capsys.readouterr().err
    assert tmp_path.joinpath(name).read_text() == before
