"""The matrix of the site and the page of `report` in a browser: filter, links, hostile texts."""

import json
from pathlib import Path

import pytest

from reports.tests import samples
from spec_tests.site import pages, runs

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "docs" / "_build" / "html"
MATRIX = SITE / "results" / "matrix.html"
#: JavaScript that returns the width of the focused element's outline.
OUTLINE = """(style => style.outlineStyle === "none" ? "none" : style.outlineWidth)(
    getComputedStyle(document.activeElement))"""
ONE, TWO = "comm.scatter.slices", "comm.scatter.zero-sizes"
REFERENCE, IMPL = "torch.nn.parallel.torch-2.13.0_sim", "impl.torch-2.13.0_sim"


@pytest.fixture(scope="session")
def published():
    """Return the published runs by name."""
    return {run.name: run for run in runs.load(ROOT / "reports")}


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    """Return a page of `report` with hostile texts."""
    folder = tmp_path_factory.mktemp("report")
    file = samples.write_verdicts(folder / "v.jsonl", {ONE: "fail", TWO: "not-run"})
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[1] |= dict.fromkeys(("test", "call", "difference"), samples.HOSTILE)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = folder / "report.html"
    pages.write_report([file], None, page)
    return page


@pytest.fixture
def visit(browser):
    """Yield a function that opens an address in a tab.

    The test fails if a page logs a message, raises an error, opens a dialog or requests an address
    on the network.
    """
    tabs, problems = [], []

    def open_page(address, **settings):
        if not tabs or settings:
            tabs.append(browser.new_context(**settings).new_page())
            tabs[-1].on("console", lambda message: problems.append(message.text))
            tabs[-1].on("pageerror", lambda error: problems.append(str(error)))
            tabs[-1].on("dialog", lambda dialog: problems.append(dialog.message))
            tabs[-1].on("request", lambda request: problems.extend(_network_urls(request.url)))
        tabs[-1].goto(f"file://{address}")
        return tabs[-1]

    yield open_page
    for tab in tabs:
        tab.context.close()
    assert problems == []


def _network_urls(url):
    return [] if url.startswith(("file:", "data:")) else [url]


def visible_clauses(page):
    """Return the ids of the clauses that the filter does not hide."""
    return page.eval_on_selector_all(
        "#matrix tr[id]:not(.chapter)",
        "rows => rows.filter(row => row.offsetParent !== null).map(row => row.id)",
    )


def test_address_keeps_the_filter_when_the_page_is_reloaded(visit):
    page = visit(MATRIX)
    all_clauses = visible_clauses(page)
    page.fill("#filter [name=q]", "scatter slices")
    filtered = visible_clauses(page)
    assert ONE in filtered
    assert len(filtered) < len(all_clauses) / 10
    assert page.evaluate("location.search") == "?q=scatter+slices"
    assert page.inner_text("#shown") == f"{len(filtered)} of {len(all_clauses)} clauses"
    page.reload()
    assert visible_clauses(page) == filtered
    assert page.input_value("#filter [name=q]") == "scatter slices"
    page.click("#filter button[type=reset]")
    page.wait_for_function("!location.search")
    assert visible_clauses(page) == all_clauses


def test_filter_by_verdict_and_column_shows_clauses_with_this_verdict_in_this_column(
    visit, published
):
    verdict_of = published[REFERENCE].verdicts
    known = {clause for clause, verdict in verdict_of.items() if verdict == "known"}
    assert set(visible_clauses(visit(f"{MATRIX}?verdict=known&column={REFERENCE}"))) == known
    page = visit(f"{MATRIX}?verdict=known&column={IMPL}")
    assert visible_clauses(page) == []
    assert page.inner_text("#shown").startswith("0 of")


def test_filter_by_two_columns_shows_clauses_with_different_verdicts_in_them(visit, published):
    first, second = published[REFERENCE].verdicts, published[IMPL].verdicts
    differ = {clause for clause in first | second if first.get(clause) != second.get(clause)}
    page = visit(f"{MATRIX}?column={REFERENCE}&other={IMPL}")
    assert set(visible_clauses(page)) == differ
    assert visible_clauses(visit(f"{MATRIX}?column={IMPL}&other={IMPL}")) == []


def test_filter_by_difference_ignores_blank_cells(visit, report):
    assert visible_clauses(visit(f"{MATRIX}?differ=1"))
    assert visible_clauses(visit(f"{report}?differ=1")) == []


def test_filter_keeps_the_anchor_in_the_address(visit):
    page = visit(f"{MATRIX}?chapter=comm#{ONE}")
    assert page.query_selector(":target").get_attribute("id") == ONE
    page.fill("#filter [name=q]", "slices")
    assert page.evaluate("location.search") == "?q=slices&chapter=comm"
    assert page.evaluate("location.hash") == f"#{ONE}"


@pytest.mark.parametrize("name", ["site", "report"])
def test_click_on_a_cell_shows_the_evidence(visit, report, name):
    page = visit(MATRIX if name == "site" else report)
    cell = page.locator("#matrix .v-known a, #matrix .v-fail a").first
    anchor = cell.get_attribute("href").partition("#")[2]
    cell.click()
    # The page before the click has no element that matches :target.
    target = page.wait_for_selector(":target")
    assert target.get_attribute("id") == anchor
    assert "--clause=" in target.inner_text()


def test_hostile_text_is_shown_and_not_executed(visit, report):
    page = visit(report)
    assert samples.HOSTILE.split("\x07")[0] in page.inner_text("main")
    assert page.query_selector("main script, [onfocus]") is None


def test_everything_but_the_filter_works_without_scripts(visit, report):
    page = visit(report, java_script_enabled=False)
    assert not page.is_visible("#filter")
    assert page.is_visible("text=The filter needs JavaScript")
    assert page.is_visible(f"tr[id='{ONE}'] .v-fail a")


def test_tab_key_reaches_every_control_of_a_report_and_shows_an_outline(visit, report):
    page = visit(f"{report}?q=scatter.slices")
    page.keyboard.press("Tab")
    focused = []
    while page.evaluate("document.activeElement !== document.body"):
        assert page.evaluate(OUTLINE) not in ("none", "0px")
        focused.append(page.evaluate("document.activeElement.name || document.activeElement.hash"))
        page.keyboard.press("Tab")
    assert {"q", "chapter", "verdict", "column", "other", "differ", f"#v--{ONE}"} <= set(focused)


def test_report_printed_in_dark_mode_is_readable_and_has_no_filter(visit, report):
    page = visit(report, color_scheme="dark")
    page.emulate_media(media="print")
    assert not page.is_visible("#filter")
    colours = page.evaluate(
        "(({color, backgroundColor}) => [color, backgroundColor])(getComputedStyle(document.body))"
    )
    assert colours == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]


@pytest.mark.parametrize("width", [400, 1300])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_fits_and_follows_the_rules_of_axe(visit, axe, report, scheme, width):
    page = visit(report, color_scheme=scheme, viewport={"width": width, "height": 900})
    page.evaluate(axe)
    result = page.evaluate("axe.run({preload: false, resultTypes: ['violations']})")
    assert {rule["id"]: rule["nodes"][0]["html"][:160] for rule in result["violations"]} == {}
    assert page.evaluate("document.documentElement.scrollWidth") <= width
