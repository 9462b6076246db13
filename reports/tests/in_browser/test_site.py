"""The site, opened from the disk in a browser: filter, links, layout, contrast and keyboard."""

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import sync_playwright

from reports.__main__ import HERE as REPORTS
from reports.tests import samples
from reports.tests.in_browser import tools
from spec_tests.harness.conformance import clauses
from spec_tests.site import make

#: JavaScript that returns the width of the focused element's outline.
OUTLINE = """(style => style.outlineStyle === "none" ? "none" : style.outlineWidth)(
    getComputedStyle(document.activeElement))"""
#: Sizes of the browser's window in pixels.
PHONE = {"width": 375, "height": 700}
DESK = {"width": 1280, "height": 900}
ONE, TWO = "comm.scatter.slices", "comm.scatter.zero-sizes"
HOSTILE_CLAUSE = "comm.scatter.even-chunks"


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Return a site of published runs, runs with every verdict, and a run with hostile text."""
    folder = tmp_path_factory.mktemp("site")
    verdicts = {ONE: "fail", TWO: "not-run", "replicate.no-device": "not-offered"}
    suite = clauses.suite_version(clauses.load())
    file = samples.write_verdicts(folder / "theirs.jsonl", verdicts, suite=suite)
    verdicts = {"divergences.CO-1.complex-stays-complex": "known", ONE: "pass", TWO: "pass"}
    other = samples.write_verdicts(
        folder / "other.jsonl", verdicts, target="torch.nn.parallel", suite=suite
    )
    hostile = samples.write_verdicts(
        folder / "hostile.jsonl", {HOSTILE_CLAUSE: "fail"}, target=samples.HOSTILE, suite=suite
    )
    lines = [json.loads(line) for line in hostile.read_text().splitlines()]
    lines[1] |= dict.fromkeys(("test", "call", "difference"), samples.HOSTILE)
    hostile.write_text("".join(json.dumps(line) + "\n" for line in lines))
    make.make(REPORTS, [file, other, hostile], folder / "full")
    (folder / "no-reports").mkdir()
    make.make(folder / "no-reports", [file, other], folder / "two-runs")
    return folder / "full"


@pytest.fixture(scope="session")
def addresses(site):
    """Return the paths of all pages, relative to the site."""
    return sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))


@pytest.fixture(scope="session")
def browser():
    """Yield Chromium without a window."""
    path = tools.find_chromium()
    with sync_playwright() as playwright:
        # The sandbox does not work in containers, and is not needed for pages that are built here.
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """Return the JavaScript source of axe-core, which checks accessibility rules."""
    return tools.install_axe(tmp_path_factory.mktemp("npm"))


@pytest.fixture
def visit(browser, site):
    """Yield a function that opens a page in a tab.

    The test fails if a page logs a message, raises an error, opens a dialog or requests an address
    on the network.
    """
    tabs, problems = [], []

    def open_page(address, **settings):
        if not tabs or settings:
            tabs.append(browser.new_context(**{"viewport": DESK, **settings}).new_page())
            tabs[-1].on("console", lambda message: problems.append(message.text))
            tabs[-1].on("pageerror", lambda error: problems.append(str(error)))
            tabs[-1].on("dialog", lambda dialog: problems.append(dialog.message))
            tabs[-1].on("request", lambda request: problems.extend(_network_urls(request.url)))
        tabs[-1].goto(f"file://{site}/{address}")
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


def test_no_page_scrolls_sideways_on_a_phone(visit, addresses):
    page, too_wide = visit("index.html", viewport=PHONE), []
    for address in addresses:
        page = visit(address)
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            too_wide.append((address, width))
    assert too_wide == []


def test_matrix_does_not_scroll_sideways_on_a_phone(visit):
    page = visit("matrix.html", viewport=PHONE)
    assert page.evaluate("e => e.scrollWidth <= e.clientWidth", page.query_selector(".wide"))


def test_every_link_has_a_page_and_an_anchor(visit, site, addresses):
    links, ids = {}, {}
    for address in addresses:
        page = visit(address)
        links[address] = page.evaluate("[...document.links].map(link => link.href)")
        page_ids = page.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
        ids[str(site / address)] = set(page_ids)
    broken = [
        (address, link)
        for address, page_links in links.items()
        for link in set(page_links)
        if link.startswith("file:") and not _exists(urlsplit(link), ids)
    ]
    assert broken == []
    assert sum(map(len, links.values())) > 1000


def _exists(link, ids):
    path = unquote(link.path)
    if not link.fragment:
        return Path(path).is_file()
    return unquote(link.fragment) in ids.get(path, ())


def test_address_keeps_the_filter_when_the_page_is_reloaded(visit):
    page = visit("matrix.html")
    all_clauses = visible_clauses(page)
    page.fill("[name=q]", "scatter slices")
    filtered = visible_clauses(page)
    assert ONE in filtered
    assert len(filtered) < len(all_clauses) / 10
    assert page.evaluate("location.search") == "?q=scatter+slices"
    assert page.inner_text("#shown") == f"{len(filtered)} of {len(all_clauses)} clauses"
    page.reload()
    assert visible_clauses(page) == filtered
    assert page.input_value("[name=q]") == "scatter slices"
    page.click("button[type=reset]")
    page.wait_for_function("!location.search")
    assert visible_clauses(page) == all_clauses


def test_filter_by_verdict_and_column_shows_clauses_with_this_verdict_in_this_column(visit):
    page = visit("matrix.html?verdict=fail&column=theirs")
    assert visible_clauses(page) == [ONE]
    assert visible_clauses(visit("matrix.html?verdict=pass&column=theirs")) == []
    page = visit("matrix.html?verdict=not-offered&column=theirs")
    assert visible_clauses(page) == ["replicate.no-device"]
    page.select_option("[name=chapter]", "comm")
    assert visible_clauses(page) == []
    assert page.inner_text("#shown").startswith("0 of")


def test_filter_by_difference_shows_clauses_with_different_verdicts(visit):
    assert {ONE, TWO} <= set(visible_clauses(visit("matrix.html?differ=1")))
    assert set(visible_clauses(visit("../two-runs/matrix.html?differ=1"))) == {ONE, TWO}


def test_filter_by_two_columns_shows_clauses_with_different_verdicts_in_them(visit):
    address = "../two-runs/matrix.html?column=theirs&other=other"
    assert {ONE, TWO} <= set(visible_clauses(visit(address)))
    assert visible_clauses(visit("matrix.html?column=theirs&other=theirs")) == []


def test_filter_keeps_the_anchor_in_the_address(visit):
    page = visit(f"matrix.html?chapter=comm#{ONE}")
    assert page.query_selector(":target").get_attribute("id") == ONE
    page.fill("[name=q]", "slices")
    assert page.evaluate("location.search") == "?q=slices&chapter=comm"
    assert page.evaluate("location.hash") == f"#{ONE}"


def test_click_on_a_cell_shows_the_failure_and_the_command_that_repeats_it(visit):
    page = visit("matrix.html")
    page.click(f"tr[id='{ONE}'] .v-fail a")
    # The page before the click has no element that matches :target.
    target = page.wait_for_selector(":target")
    assert target.get_attribute("id") == f"{ONE}--theirs"
    assert page.evaluate("e => e.getBoundingClientRect().top < innerHeight", target)
    explanation = page.inner_text(f".why:has([id='{ONE}--theirs'])")
    assert f"{ONE} differs" in explanation
    assert f"call('{ONE}')" in explanation
    assert f"--clause={ONE}" in explanation


def test_hostile_text_is_shown_and_not_executed(visit):
    page = visit(f"clauses/comm.html#{HOSTILE_CLAUSE}--hostile")
    assert samples.HOSTILE.split("\x07")[0] in page.inner_text("main")
    assert page.query_selector("main script, [onfocus]") is None


def test_everything_but_the_filter_works_without_scripts(visit):
    page = visit("matrix.html", java_script_enabled=False)
    assert not page.is_visible("#filter")
    assert page.is_visible("text=The filter needs JavaScript")
    assert page.is_visible(f"tr[id='{ONE}'] .v-fail a")


def test_tab_key_reaches_every_control_and_shows_an_outline(visit):
    page = visit("matrix.html?q=scatter.slices")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    focused = []
    while page.evaluate("document.activeElement !== document.body"):
        assert page.evaluate(OUTLINE) not in ("none", "0px")
        focused.append(page.evaluate("document.activeElement.name || document.activeElement.hash"))
        page.keyboard.press("Tab")
    assert {"q", "chapter", "verdict", "column", "differ", f"#{ONE}--theirs"} <= set(focused)


def test_page_printed_in_dark_mode_is_white_and_has_no_navigation(visit):
    page = visit("matrix.html", color_scheme="dark")
    screen_colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(media="print")
    paper_colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert screen_colour != paper_colour
    assert paper_colour == "rgb(255, 255, 255)"
    assert not page.is_visible("nav")
    assert page.is_visible(f"tr[id='{ONE}']")


#: One page of each kind.
PAGES = [
    "index.html",
    "matrix.html",
    "clauses/comm.html",
    "runs/theirs.html",
    "benchmarks.html",
]


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_follow_the_accessibility_rules_of_axe(visit, axe, scheme, size):
    visit("index.html", color_scheme=scheme, viewport=size)
    violations = {}
    for address in PAGES:
        page = visit(address)
        page.evaluate(axe)
        result = page.evaluate("axe.run({preload: false, resultTypes: ['violations']})")
        rules = {rule["id"]: rule["nodes"][0]["html"][:200] for rule in result["violations"]}
        violations |= {address: rules} if rules else {}
    assert violations == {}
