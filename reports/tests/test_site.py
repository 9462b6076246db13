"""The web site of the runs: its content, its links, and the escaping of texts from files."""

import html
import json
import re

import pytest

from reports.tests import samples
from reports.tests.page_reader import find_broken_links, read_page
from spec_tests.cli.main import main
from spec_tests.harness.conformance import clauses
from spec_tests.site import make, runs, validated_files
from spec_tests.site.build import write
from spec_tests.site.matrix import Matrix

ONE, TWO, THREE = "comm.scatter.slices", "comm.scatter.zero-sizes", "replicate.one-per-device"


@pytest.fixture
def load_runs(tmp_path):
    """Return a function that writes and loads a run for each dict of clause ids and verdicts."""

    def write_and_load(*columns):
        files = [
            samples.write_verdicts(tmp_path / f"run{index}.jsonl", column, target=f"target{index}")
            for index, column in enumerate(columns)
        ]
        return runs.load(None, files)

    return write_and_load


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of a site with three implementations and two reports of benchmarks."""
    folder = tmp_path_factory.mktemp("reports")
    verdicts = {ONE: "pass", TWO: "known", THREE: "not-run"}
    files = [
        samples.write_verdicts(folder / "local" / "one.jsonl", verdicts, target="one"),
        samples.write_verdicts(folder / "two.jsonl", {ONE: "fail", TWO: "pass"}, target="two"),
        samples.write_verdicts(folder / "three.jsonl", {ONE: "pass", TWO: "not-offered"}),
    ]
    times = {"reference": 2.0, "impl": 1.0, "module": 0.5}
    for name in ("a_bench", "b_bench"):
        groups = {f"DataParallel blocks={count} devices=4": times for count in (10, 100)}
        samples.write_benchmark_report(folder / "results" / "impl" / name, groups)
    site_folder = folder / "site"
    make.make(folder, files[1:], site_folder)
    return site_folder


def test_every_link_leads_to_a_page_and_anchor(site):
    assert find_broken_links(site) == []


def test_ids_of_a_page_are_unique(site):
    for path in site.rglob("*.html"):
        ids = read_page(path).ids
        assert len(ids) == len(set(ids)), path


def test_pages_load_only_files_of_the_site(site):
    for path in site.rglob("*.html"):
        for address in read_page(path).loaded:
            assert address == "data:," or (path.parent / address).is_file(), (path, address)
    assert "url(" not in (site / "static" / "site.css").read_text()


def _read_linked_section(site, clause, column_key):
    """Return the part of a page that the clause's cell in the matrix links to.

    Args:
        site: The folder of the site.
        clause: The clause id, which is the row of the matrix.
        column_key: The letter of the matrix's column.
    """
    text = (site / "matrix.html").read_text()
    row = text[text.index(f'<tr id="{clause}">') :]
    (link,) = re.findall(
        rf'<a href="([^"]+)" aria-label="{column_key} [^"]+">', row.partition("</tr>")[0]
    )
    address, _, anchor = link.partition("#")
    page = (site / address).read_text()
    section = page[page.index(f'<section id="{clause}">') :].partition("</section>")[0]
    return section[section.index(f'id="{anchor}"') :] if "--" in anchor else section


def test_cell_links_to_the_clause_with_its_difference_call_and_command(site):
    section = _read_linked_section(site, ONE, "C")
    clause = clauses.load()[ONE]
    page = (site / "clauses" / "comm.html").read_text()
    assert f'<p class="sentence">{clause.says}</p>' in page
    assert f"Basis: {clause.basis}" in page
    assert f'href="{clause.source}"' in page
    assert f"call(&#39;{ONE}&#39;)" in section
    assert f"{ONE} differs" in section
    assert f"parallel-conformance run theirs --accelerator=sim --clause={ONE}" in section


def test_call_that_is_also_in_the_text_of_the_difference_is_shown_once(tmp_path):
    file = samples.write_verdicts(tmp_path / "v.jsonl", {ONE: "fail"})
    difference, call = f"{ONE} differs", f"call({ONE!r})"
    difference_with_call = json.dumps(f"they disagree on\n  {call}\nhere")
    file.write_text(file.read_text().replace(json.dumps(difference), difference_with_call))
    make.make(None, [file], tmp_path / "site")
    section = html.unescape(_read_linked_section(tmp_path / "site", ONE, "A"))
    assert section.count(call) == 1
    assert "they disagree on\n  the call above\nhere" in section


def test_cell_of_a_clause_that_was_not_run_links_to_the_reason(site):
    assert "needs two devices" in _read_linked_section(site, THREE, "A")


def test_equal_differences_of_several_runs_are_shown_once(tmp_path):
    names = ("one", "two")
    files = [
        samples.write_verdicts(tmp_path / f"{n}.jsonl", {ONE: "fail"}, target=n) for n in names
    ]
    make.make(None, files, tmp_path / "site")
    page = (tmp_path / "site" / "clauses" / "comm.html").read_text()
    assert page.count("What differs") == 1
    assert f'id="{ONE}--one"' in page
    assert f'id="{ONE}--two"' in page


def test_second_build_writes_identical_files(site, tmp_path):
    again = tmp_path / "site"
    make.make(site.parent, [site.parent / f"{name}.jsonl" for name in ("two", "three")], again)
    for path in sorted(path for path in site.rglob("*") if path.is_file()):
        assert path.read_bytes() == (again / path.relative_to(site)).read_bytes(), path


def test_build_removes_pages_of_an_older_site(site, tmp_path):
    file = samples.write_verdicts(tmp_path / "v.jsonl", {ONE: "pass"})
    for name in ("old", "new"):
        make.make(None, [file.rename(tmp_path / f"{name}.jsonl")], tmp_path / "site")
        file = tmp_path / f"{name}.jsonl"
    assert [path.name for path in (tmp_path / "site" / "runs").iterdir()] == ["new.html"]


def test_build_refuses_a_folder_with_files_that_are_not_of_a_site(site, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "thesis.txt").write_text("years of work")
    file = samples.write_verdicts(tmp_path / "v.jsonl", {ONE: "pass"})
    with pytest.raises(validated_files.RefusedError, match="other files than a site"):
        make.make(None, [file], tmp_path / "site")
    assert (tmp_path / "site" / "thesis.txt").exists()


def test_build_without_runs_raises_and_creates_no_folder(tmp_path):
    with pytest.raises(validated_files.RefusedError, match="no run to show"):
        make.make(tmp_path, (), tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_build_refuses_a_file_of_verdicts_without_a_header(tmp_path):
    path = samples.write_verdicts(tmp_path / "v.jsonl", {ONE: "pass"})
    path.write_text(path.read_text().split("\n", 1)[1])
    with pytest.raises(validated_files.RefusedError, match="has no header"):
        make.make(None, [path], tmp_path / "site")


def _make_hostile(value):
    """Return ``value`` with `samples.HOSTILE` in place of every text, also in dicts and lists."""
    if isinstance(value, dict):
        kept = ("clause", "verdict")
        return {key: each if key in kept else _make_hostile(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_make_hostile(each) for each in value]
    return samples.HOSTILE if isinstance(value, str) else value


def test_pages_escape_every_text_from_a_file(tmp_path):
    file = samples.write_verdicts(
        tmp_path / "one.jsonl", {ONE: "fail", TWO: "not-run", THREE: "known"}
    )
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(_make_hostile(line)) + "\n" for line in lines))
    other = samples.write_verdicts(tmp_path / "two.jsonl", {ONE: "pass"})
    report = tmp_path / "reports" / "results" / "impl" / "bench"
    samples.write_benchmark_report(report, {"b=1": {"reference": 2.0, "impl": 1.0, "blocks": 1.0}})
    data = json.loads((report / "benchmark.json").read_text())
    data["runs"] = [_make_hostile(run) for run in data["runs"]]
    for index, each in enumerate(data["runs"][0]["benchmarks"]):
        size = f"blocks={10 ** (1 + index // 3)}"
        each["group"] = f"{samples.HOSTILE} {size}"
        each["extra_info"]["library"] = ("reference", "impl", samples.HOSTILE)[index % 3]
    data["machine"] = _make_hostile(data["machine"])
    (report / "benchmark.json").write_text(json.dumps(data))
    make.make(tmp_path / "reports", [file, other], tmp_path / "site")
    for path in (tmp_path / "site").rglob("*.html"):
        page = read_page(path)
        assert page.tags.count("script") == (path.name == "matrix.html"), path
        assert not [name for name in page.attributes if name.startswith("on")], path
        assert page.tags.count("title") == 1, path
    assert find_broken_links(tmp_path / "site") == []
    text = read_page(tmp_path / "site" / "clauses" / "comm.html").text
    assert (
        text.count(samples.HOSTILE) > 5
    )  # For example in the test id, call, difference and command.
    assert samples.HOSTILE in read_page(tmp_path / "site" / "benchmarks.html").text


def test_matrix_has_the_newest_run_of_each_target_and_release_as_a_column(tmp_path):
    for name, day, torch in [("a", 1, "2.13.0"), ("b", 2, "2.13.0+cu130"), ("c", 1, "2.9.0")]:
        date = f"2026-01-0{day}T00:00:00"
        samples.write_verdicts(
            tmp_path / "local" / f"{name}.jsonl", {ONE: "pass"}, torch=torch, date=date
        )
    results = runs.load(tmp_path)
    assert [run.name for run in results.newest] == ["c", "b"]
    assert [run.name for run in results.runs] == ["a", "c", "b"]


def test_unpublished_run_does_not_replace_a_published_one(tmp_path):
    samples.write_verdicts(tmp_path / "local" / "sim.jsonl", {ONE: "fail"}, target="impl")
    report = tmp_path / "results" / "impl" / "torch-2.12.0_sim"
    samples.write_verdict_report(report, {ONE: "fail"}, target="impl", version="1.0")
    published, unpublished = runs.load(tmp_path).newest
    assert (published.published, unpublished.published) == (True, False)
    assert f"{published.label} · not published" == unpublished.label


def test_columns_are_runs_of_the_current_suite_or_else_of_the_suite_of_the_newest_run(load_runs):
    known = clauses.load()
    current = clauses.suite_version(known)
    for suites, columns in [
        (("a", current, "b"), ["target1"]),
        (("a", "b", "a"), ["target0", "target2"]),
        (("a", "a", "b"), ["target0", "target1"]),
    ]:
        results = load_runs({ONE: "pass"}, {ONE: "pass"}, {ONE: "pass"})
        # The runs are dated 3, 2 and 1 January, so the first run is the newest.
        dated_runs = [
            runs.Run(
                run.name,
                {**run.about, "suite": suite, "date": f"2026-01-0{3 - index}"},
                run.tests,
            )
            for index, (run, suite) in enumerate(zip(results.runs, suites, strict=True))
        ]
        matrix = Matrix.of(runs.Results(dated_runs[::-1], []), known)
        assert [run.about["target"] for run in matrix.columns] == columns
        assert len(matrix.older) == 3 - len(columns)


def test_missing_suite_version_is_computed_from_the_clauses_of_the_run(tmp_path):
    path = samples.write_verdicts(tmp_path / "v.jsonl", {ONE: "pass", TWO: "fail"}, suite="")
    (run,) = runs.load(None, [path]).runs
    assert run.suite == clauses.suite_version([TWO, ONE])
    assert run.suite.startswith("2 clauses, ")


def test_run_shows_a_clause_missing_from_the_specification_as_removed(tmp_path):
    file = samples.write_verdicts(tmp_path / "v.jsonl", {"gone.once": "fail"})
    make.make(None, [file], tmp_path / "site")
    assert "gone.once differs" in _read_linked_section(tmp_path / "site", "gone.once", "A")
    assert (
        "removed from the specification"
        in (tmp_path / "site" / "clauses" / "gone.html").read_text()
    )


def test_page_of_benchmarks_has_a_column_for_each_variant(tmp_path):
    report = tmp_path / "reports" / "results" / "impl" / "models_bench"
    times = {"one device": 1.0, "reference": 4.0, "impl": 2.0, "impl held": 0.5}
    samples.write_benchmark_report(report, {"model training": times, "model cpu": {"impl": 3.0}})
    verdicts = samples.write_verdicts(tmp_path / "one.jsonl", {ONE: "pass"})
    make.make(tmp_path / "reports", [verdicts], tmp_path / "site")
    text = read_page(tmp_path / "site" / "benchmarks.html").text
    assert "impl held" in text
    assert "500, 450 to 550" in text


def test_page_of_benchmarks_shows_large_times_and_sizes(tmp_path):
    report = tmp_path / "reports" / "results" / "impl" / "a_bench"
    sizes = ("9" * 9, "9" * 5000)
    times = {"reference": 5e8, "impl": 1e-3}
    samples.write_benchmark_report(report, {f"blocks={size[:150]}": times for size in sizes})
    verdicts = samples.write_verdicts(tmp_path / "one.jsonl", {ONE: "pass"})
    make.make(tmp_path / "reports", [verdicts], tmp_path / "site")
    assert "5e+11" in read_page(tmp_path / "site" / "benchmarks.html").text


def test_site_in_place_of_a_file_is_refused_in_one_line(tmp_path, capsys):
    verdicts = samples.write_verdicts(tmp_path / "one.jsonl", {ONE: "pass"})
    assert main(["report", str(verdicts), "--to", str(verdicts)]) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert verdicts.stat().st_size > 0


def test_write_returns_the_number_of_written_pages(site, tmp_path):
    content = make.site_of(site.parent)
    assert write(content, tmp_path / "site") == len(list((tmp_path / "site").rglob("*.html")))
