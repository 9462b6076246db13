"""The site of published runs: what its pages show, where their links lead, what they escape."""

import html
import json
import re

import pytest

from reports import samples
from reports.page_reader import broken_links, read
from spec_tests.harness.conformance import clauses
from spec_tests.site import checked, make, runs
from spec_tests.site.build import write
from spec_tests.site.matrix import Matrix, differences

ONE, TWO, THREE = "comm.scatter.slices", "comm.scatter.zero-sizes", "replicate.one-per-device"


@pytest.fixture
def shelf(tmp_path):
    """A shelf of runs that say of their clauses what is asked for, column by column."""

    def make_shelf(*columns, **about):
        files = [
            samples.verdicts(tmp_path / f"run{place}.jsonl", column, target=f"target{place}")
            for place, column in enumerate(columns)
        ]
        return runs.load(None, files)

    return make_shelf


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A site of three implementations and two publications of benchmarks."""
    folder = tmp_path_factory.mktemp("reports")
    verdicts = {ONE: "pass", TWO: "known", THREE: "not-run"}
    files = [
        samples.verdicts(folder / "local" / "one.jsonl", verdicts, target="one"),
        samples.verdicts(folder / "two.jsonl", {ONE: "fail", TWO: "pass"}, target="two"),
        samples.verdicts(folder / "three.jsonl", {ONE: "pass", TWO: "not-offered"}),
    ]
    times = {"reference": 2.0, "impl": 1.0, "module": 0.5}
    for name in ("a_bench", "b_bench"):
        groups = {f"DataParallel blocks={count} devices=4": times for count in (10, 100)}
        samples.benchmarks(folder / name, groups)
    made = folder / "site"
    make.make(folder, files[1:], made)
    return made


def test_every_link_leads_somewhere(home):
    assert broken_links(home) == []


def test_every_id_of_a_page_is_its_own(home):
    for path in home.rglob("*.html"):
        ids = read(path).ids
        assert len(ids) == len(set(ids)), path


def test_nothing_is_loaded_from_elsewhere(home):
    for path in home.rglob("*.html"):
        for address in read(path).loaded:
            assert address == "data:," or (path.parent / address).is_file(), (path, address)
    assert "url(" not in (home / "static" / "site.css").read_text()


def _linked(home, clause, key):
    """The page that the cell of a clause leads to, from its anchor on."""
    text = (home / "matrix.html").read_text()
    row = text[text.index(f'<tr id="{clause}">') :]
    (link,) = re.findall(
        rf'<a href="([^"]+)" aria-label="{key} [^"]+">', row.partition("</tr>")[0]
    )
    address, _, anchor = link.partition("#")
    page = (home / address).read_text()
    section = page[page.index(f'<section id="{clause}">') :].partition("</section>")[0]
    return section[section.index(f'id="{anchor}"') :] if "--" in anchor else section


def test_a_cell_leads_to_sentence_basis_difference_call_and_command(home):
    section = _linked(home, ONE, "C")
    clause = clauses.load()[ONE]
    whole = (home / "clauses" / "comm.html").read_text()
    assert f'<p class="sentence">{clause.says}</p>' in whole
    assert f"Basis: {clause.basis}" in whole
    assert f'href="{clause.source}"' in whole
    assert f"call(&#39;{ONE}&#39;)" in section
    assert f"{ONE} differs" in section
    assert f"parallel-conformance run theirs --accelerator=sim --clause={ONE}" in section


def test_a_call_that_the_difference_repeats_is_shown_once(tmp_path):
    file = samples.verdicts(tmp_path / "v.jsonl", {ONE: "fail"})
    told, call = f"{ONE} differs", f"call({ONE!r})"
    both = json.dumps(f"they disagree on\n  {call}\nhere")
    file.write_text(file.read_text().replace(json.dumps(told), both))
    make.make(None, [file], tmp_path / "site")
    section = html.unescape(_linked(tmp_path / "site", ONE, "A"))
    assert section.count(call) == 1
    assert "they disagree on\n  the call above\nhere" in section


def test_a_cell_of_what_was_not_run_leads_to_the_reason(home):
    assert "needs two devices" in _linked(home, THREE, "A")


def test_a_clause_of_the_register_names_record_and_threads(tmp_path):
    clause = "divergences.CO-1.complex-stays-complex"
    file = samples.verdicts(tmp_path / "v.jsonl", {clause: "known"})
    make.make(None, [file], tmp_path / "site")
    page = (tmp_path / "site" / "clauses" / "divergences.html").read_text()
    section = page[page.index(f'<section id="{clause}">') :].partition("</section>")[0]
    assert 'href="../divergences.html#CO-1"' in section
    assert "https://github.com/pytorch/pytorch/" in section


def test_what_is_the_same_in_several_columns_is_told_once(tmp_path):
    names = ("one", "two")
    files = [samples.verdicts(tmp_path / f"{n}.jsonl", {ONE: "fail"}, target=n) for n in names]
    make.make(None, files, tmp_path / "site")
    page = (tmp_path / "site" / "clauses" / "comm.html").read_text()
    assert page.count("What differs") == 1
    assert f'id="{ONE}--one"' in page
    assert f'id="{ONE}--two"' in page


def test_two_builds_are_equal_to_the_byte(home, tmp_path):
    again = tmp_path / "site"
    make.make(home.parent, [home.parent / f"{name}.jsonl" for name in ("two", "three")], again)
    for path in sorted(path for path in home.rglob("*") if path.is_file()):
        assert path.read_bytes() == (again / path.relative_to(home)).read_bytes(), path


def test_a_site_is_made_anew_where_there_was_one(home, tmp_path):
    file = samples.verdicts(tmp_path / "v.jsonl", {ONE: "pass"})
    for name in ("old", "new"):
        make.make(None, [file.rename(tmp_path / f"{name}.jsonl")], tmp_path / "site")
        file = tmp_path / f"{name}.jsonl"
    assert [path.name for path in (tmp_path / "site" / "runs").iterdir()] == ["new.html"]


def test_a_folder_that_holds_something_else_is_left_alone(home, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "thesis.txt").write_text("years of work")
    file = samples.verdicts(tmp_path / "v.jsonl", {ONE: "pass"})
    with pytest.raises(checked.RefusedError, match="something else than a site"):
        make.make(None, [file], tmp_path / "site")
    assert (tmp_path / "site" / "thesis.txt").exists()


def test_where_there_is_no_run_there_is_no_site(tmp_path):
    with pytest.raises(checked.RefusedError, match="no run to show"):
        make.make(tmp_path, (), tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_a_file_that_does_not_say_what_was_run_is_refused(tmp_path):
    path = samples.verdicts(tmp_path / "v.jsonl", {ONE: "pass"})
    path.write_text(path.read_text().split("\n", 1)[1])
    with pytest.raises(checked.RefusedError, match="does not say in its first line"):
        make.make(None, [path], tmp_path / "site")


def _hostile(value):
    """The same with `samples.HOSTILE` in place of every text."""
    if isinstance(value, dict):
        kept = ("clause", "verdict")
        return {key: each if key in kept else _hostile(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_hostile(each) for each in value]
    return samples.HOSTILE if isinstance(value, str) else value


def test_what_runs_have_written_is_text_in_every_field(tmp_path):
    file = samples.verdicts(tmp_path / "one.jsonl", {ONE: "fail", TWO: "not-run", THREE: "known"})
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(_hostile(line)) + "\n" for line in lines))
    other = samples.verdicts(tmp_path / "two.jsonl", {ONE: "pass"})
    home = tmp_path / "reports" / "bench"
    samples.benchmarks(home, {"b=1": {"reference": 2.0, "impl": 1.0, "blocks": 1.0}})
    data = json.loads((home / "benchmark.json").read_text())
    data["runs"] = [_hostile(run) for run in data["runs"]]
    for place, each in enumerate(data["runs"][0]["benchmarks"]):
        size = f"blocks={10 ** (1 + place // 3)}"
        each["group"] = f"{samples.HOSTILE} {size}"
        each["extra_info"]["library"] = ("reference", "impl", samples.HOSTILE)[place % 3]
    data["machine"] = _hostile(data["machine"])
    (home / "benchmark.json").write_text(json.dumps(data))
    make.make(home.parent, [file, other], tmp_path / "site")
    for path in (tmp_path / "site").rglob("*.html"):
        page = read(path)
        assert page.tags.count("script") == (path.name == "matrix.html"), path
        assert not [name for name in page.attributes if name.startswith("on")], path
        assert page.tags.count("title") == 1, path
    assert broken_links(tmp_path / "site") == []
    shown = read(tmp_path / "site" / "clauses" / "comm.html").text
    assert shown.count(samples.HOSTILE) > 5  # test, call, difference and command among them
    assert samples.HOSTILE in read(tmp_path / "site" / "benchmarks.html").text


def test_the_newest_run_of_each_kind_is_a_column(tmp_path):
    for name, day, torch in [("a", 1, "2.13.0"), ("b", 2, "2.13.0+cu130"), ("c", 1, "2.9.0")]:
        date = f"2026-01-0{day}T00:00:00"
        samples.verdicts(
            tmp_path / "local" / f"{name}.jsonl", {ONE: "pass"}, torch=torch, date=date
        )
    shelf = runs.load(tmp_path)
    assert [run.name for run in shelf.columns] == ["c", "b"]
    assert [run.name for run in shelf.runs] == ["a", "c", "b"]


def test_a_run_that_is_not_published_takes_no_published_ones_place(tmp_path):
    file = samples.verdicts(tmp_path / "local" / "sim.jsonl", {ONE: "fail"}, target="impl")
    (tmp_path / "a").mkdir()
    samples.environment(tmp_path / "a", version="1.0")
    (tmp_path / "a" / "verdicts.jsonl").write_text(file.read_text().split("\n", 1)[1])
    found = runs.load(tmp_path).columns
    assert [run.published for run in found] == [True, False]
    assert f"{found[0].label} · not published" == found[1].label


def test_only_here_is_what_one_alone_does_not_keep(shelf):
    found = shelf(
        {ONE: "fail", TWO: "known", THREE: "not-offered"},
        {ONE: "pass", TWO: "fail", THREE: "not-run"},
        {ONE: "not-offered", TWO: "pass"},
    )
    matrix = Matrix.of(found, clauses.load())
    only = matrix.only_here(lambda run: run.about["target"])
    names = {target: [clause.id for clause in each] for target, each in only.items()}
    assert names == {"target0": [ONE], "target1": [], "target2": []}


def test_all_agree_where_two_at_least_say_the_same(shelf):
    found = shelf(
        {ONE: "pass", TWO: "fail", THREE: "pass"},
        {ONE: "pass", TWO: "pass"},
        {ONE: "not-offered", THREE: "not-offered"},
    )
    agreed = Matrix.of(found, clauses.load()).agreed()
    assert {verdict: [each.id for each in members] for verdict, members in agreed.items()} == {
        "pass": [ONE]
    }


def test_a_difference_names_what_one_of_two_did_not_judge(shelf):
    found = shelf({ONE: "pass", TWO: "fail"}, {ONE: "pass", THREE: "pass"})
    matrix = Matrix.of(found, clauses.load())
    changes = differences(matrix.clauses.values(), *found.columns)
    assert [(each.clause.id, each.before, each.after) for each in changes] == [
        (TWO, "fail", ""),
        (THREE, "", "pass"),
    ]


def test_a_clause_that_the_specification_no_longer_has_is_shown(tmp_path):
    file = samples.verdicts(tmp_path / "v.jsonl", {"gone.once": "fail"})
    make.make(None, [file], tmp_path / "site")
    assert "gone.once differs" in _linked(tmp_path / "site", "gone.once", "A")
    assert "not in today" in (tmp_path / "site" / "clauses" / "gone.html").read_text()


def test_every_schema_is_offered(home):
    names = {path.name for path in (home / "data").glob("*.schema.json")}
    assert names == {f"{each}.schema.json" for each in ("benchmark", "environment", "verdicts")}


def test_write_returns_the_number_of_pages(home, tmp_path):
    site = make.site_of(home.parent)
    assert write(site, tmp_path / "site") == len(list((tmp_path / "site").rglob("*.html")))
