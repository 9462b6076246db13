"""Three built pages in a browser: axe-core finds nothing, no page is too wide, the filter works.

``tox -e docs`` builds the site before it runs these tests. They need Chromium and npm.
"""

from pathlib import Path

import pytest

from spec_tests.harness.conformance import clauses
from spec_tests.reporting import pages, runs
from spec_tests.reporting.tests import samples

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "docs" / "_build" / "html"
MATRIX = SITE / "results" / "matrix.html"
PHONE = {"width": 400, "height": 800}
ONE, TWO = "comm.scatter.slices", "comm.scatter.zero-sizes"
REFERENCE, IMPL = "torch.nn.parallel.torch-2.13.0_sim", "impl.torch-2.13.0_sim"


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    """Return a page of ``parallel-conformance report``."""
    folder = tmp_path_factory.mktemp("report")
    file = samples.write_verdicts(folder / "v.jsonl", {ONE: "fail", TWO: "not-run"})
    page = folder / "report.html"
    pages.write_report([file], None, page)
    return page


@pytest.fixture
def tab(browser):
    """Yield a tab of the size of a phone, in dark colours."""
    context = browser.new_context(viewport=PHONE, color_scheme="dark")
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", ["start", "matrix", "report"])
def test_page_fits_and_follows_the_rules_of_axe(tab, axe, report, name):
    path = {"start": SITE / "index.html", "matrix": MATRIX, "report": report}[name]
    tab.goto(f"file://{path}")
    tab.evaluate(axe)
    result = tab.evaluate("axe.run({preload: false, resultTypes: ['violations']})")
    assert {rule["id"]: rule["nodes"][0]["html"][:160] for rule in result["violations"]} == {}
    assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def visible_clauses(page):
    """Return the ids of the clauses that the filter does not hide."""
    return page.eval_on_selector_all(
        "#matrix tr[id]:not(.chapter)",
        "rows => rows.filter(row => row.offsetParent !== null).map(row => row.id)",
    )


def test_address_keeps_the_filter_when_the_page_is_reloaded(tab):
    tab.goto(f"file://{MATRIX}")
    all_clauses = visible_clauses(tab)
    tab.fill("#filter [name=q]", "scatter slices")
    filtered = visible_clauses(tab)
    assert ONE in filtered
    assert len(filtered) < len(all_clauses) / 10
    assert tab.evaluate("location.search") == "?q=scatter+slices"
    tab.reload()
    assert visible_clauses(tab) == filtered
    tab.click("#filter button[type=reset]")
    tab.wait_for_function("!location.search")
    assert visible_clauses(tab) == all_clauses


def test_filter_by_two_columns_shows_clauses_with_different_verdicts_in_them(tab):
    published = {run.name: run.verdicts for run in runs.load(ROOT / "reports")}
    first, second = published[REFERENCE], published[IMPL]
    # Published runs keep clauses that the suite has no more; the page does not show them.
    differ = {clause for clause in clauses.load() if first.get(clause) != second.get(clause)}
    tab.goto(f"file://{MATRIX}?column={REFERENCE}&other={IMPL}")
    assert set(visible_clauses(tab)) == differ
