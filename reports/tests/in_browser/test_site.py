"""The site in a browser, from the disk: filter, anchors, links, width, contrast, keyboard."""

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

#: The width of the outline of the focused element.
OUTLINE = """(style => style.outlineStyle === "none" ? "none" : style.outlineWidth)(
    getComputedStyle(document.activeElement))"""
PHONE = {"width": 375, "height": 700}
DESK = {"width": 1280, "height": 900}
ONE, TWO = "comm.scatter.slices", "comm.scatter.zero-sizes"
HOSTILE_CLAUSE = "comm.scatter.even-chunks"


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """A site of the published runs and of runs with every verdict, one with hostile text."""
    folder = tmp_path_factory.mktemp("site")
    verdicts = {ONE: "fail", TWO: "not-run", "replicate.no-device": "not-offered"}
    suite = clauses.suite_version(clauses.load())
    file = samples.verdicts(folder / "theirs.jsonl", verdicts, suite=suite)
    known = {"divergences.CO-1.complex-stays-complex": "known", ONE: "pass", TWO: "pass"}
    other = samples.verdicts(
        folder / "other.jsonl", known, target="torch.nn.parallel", suite=suite
    )
    hostile = samples.verdicts(
        folder / "hostile.jsonl", {HOSTILE_CLAUSE: "fail"}, target=samples.HOSTILE, suite=suite
    )
    lines = [json.loads(line) for line in hostile.read_text().splitlines()]
    lines[1] |= dict.fromkeys(("test", "call", "difference"), samples.HOSTILE)
    hostile.write_text("".join(json.dumps(line) + "\n" for line in lines))
    make.make(REPORTS, [file, other, hostile], folder / "made")
    (folder / "none").mkdir()
    make.make(folder / "none", [file, other], folder / "two")
    return folder / "made"


@pytest.fixture(scope="session")
def addresses(site):
    """The addresses of all pages."""
    return sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window."""
    path = tools.chromium()
    with sync_playwright() as playwright:
        # The sandbox does not work in containers; only pages built here are opened.
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """The source of axe-core."""
    return tools.axe(tmp_path_factory.mktemp("npm"))


@pytest.fixture
def visit(browser, site):
    """Open pages in a tab; fail at the end on a message, an error, a dialog or a request."""
    tabs, problems = [], []

    def open_page(address, **settings):
        if not tabs or settings:
            tabs.append(browser.new_context(**{"viewport": DESK, **settings}).new_page())
            tabs[-1].on("console", lambda message: problems.append(message.text))
            tabs[-1].on("pageerror", lambda error: problems.append(str(error)))
            tabs[-1].on("dialog", lambda dialog: problems.append(dialog.message))
            tabs[-1].on("request", lambda request: problems.extend(_outside(request.url)))
        tabs[-1].goto(f"file://{site}/{address}")
        return tabs[-1]

    yield open_page
    for tab in tabs:
        tab.context.close()
    assert problems == []


def _outside(url):
    return [] if url.startswith(("file:", "data:")) else [url]


def shown(page):
    """Return the clauses that are not hidden."""
    return page.eval_on_selector_all(
        "#matrix tr[id]:not(.chapter)",
        "rows => rows.filter(row => row.offsetParent !== null).map(row => row.id)",
    )


def test_no_page_scrolls_sideways_on_a_phone(visit, addresses):
    page, wide = visit("index.html", viewport=PHONE), []
    for address in addresses:
        page = visit(address)
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            wide.append((address, width))
    assert wide == []


def test_matrix_needs_no_scrolling_on_a_phone(visit):
    page = visit("matrix.html", viewport=PHONE)
    assert page.evaluate("e => e.scrollWidth <= e.clientWidth", page.query_selector(".wide"))


def test_every_link_has_a_page_and_an_anchor(visit, site, addresses):
    links, ids = {}, {}
    for address in addresses:
        page = visit(address)
        links[address] = page.evaluate("[...document.links].map(link => link.href)")
        found = page.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
        ids[str(site / address)] = set(found)
    broken = [
        (address, link)
        for address, found in links.items()
        for link in set(found)
        if link.startswith("file:") and not _exists(urlsplit(link), ids)
    ]
    assert broken == []
    assert sum(map(len, links.values())) > 1000


def _exists(link, ids):
    path = unquote(link.path)
    if not link.fragment:
        return Path(path).is_file()
    return unquote(link.fragment) in ids.get(path, ())


def test_filter_is_kept_in_the_address(visit):
    page = visit("matrix.html")
    everything = shown(page)
    page.fill("[name=q]", "scatter slices")
    some = shown(page)
    assert ONE in some
    assert len(some) < len(everything) / 10
    assert page.evaluate("location.search") == "?q=scatter+slices"
    assert page.inner_text("#shown") == f"{len(some)} of {len(everything)} clauses"
    page.reload()
    assert shown(page) == some
    assert page.input_value("[name=q]") == "scatter slices"
    page.click("button[type=reset]")
    page.wait_for_function("!location.search")
    assert shown(page) == everything


def test_filter_by_verdict_and_column_shows_that_verdict_in_that_column(visit):
    page = visit("matrix.html?verdict=fail&column=theirs")
    assert shown(page) == [ONE]
    assert shown(visit("matrix.html?verdict=pass&column=theirs")) == []
    page = visit("matrix.html?verdict=not-offered&column=theirs")
    assert shown(page) == ["replicate.no-device"]
    page.select_option("[name=chapter]", "comm")
    assert shown(page) == []
    assert page.inner_text("#shown").startswith("0 of")


def test_filter_by_difference_shows_clauses_with_two_verdicts(visit):
    assert {ONE, TWO} <= set(shown(visit("matrix.html?differ=1")))
    assert set(shown(visit("../two/matrix.html?differ=1"))) == {ONE, TWO}


def test_filter_works_with_an_anchor(visit):
    page = visit(f"matrix.html?chapter=comm#{ONE}")
    assert page.query_selector(":target").get_attribute("id") == ONE
    page.fill("[name=q]", "slices")
    assert page.evaluate("location.search") == "?q=slices&chapter=comm"
    assert page.evaluate("location.hash") == f"#{ONE}"


def test_cell_links_to_the_failure_and_the_command(visit):
    page = visit("matrix.html")
    page.click(f"tr[id='{ONE}'] .v-fail a")
    target = page.wait_for_selector(":target")  # no element of the page before
    assert target.get_attribute("id") == f"{ONE}--theirs"
    assert page.evaluate("e => e.getBoundingClientRect().top < innerHeight", target)
    why = page.inner_text(f".why:has([id='{ONE}--theirs'])")
    assert f"{ONE} differs" in why
    assert f"call('{ONE}')" in why
    assert f"--clause={ONE}" in why


def test_hostile_text_is_shown_and_not_executed(visit):
    page = visit(f"clauses/comm.html#{HOSTILE_CLAUSE}--hostile")
    assert samples.HOSTILE.split("\x07")[0] in page.inner_text("main")
    assert page.query_selector("main script, [onfocus]") is None


def test_pages_without_scripts_lack_only_the_filter(visit):
    page = visit("matrix.html", java_script_enabled=False)
    assert not page.is_visible("#filter")
    assert page.is_visible("text=Without scripts there is no filter")
    assert page.is_visible(f"tr[id='{ONE}'] .v-fail a")
    page.click("nav >> text=Only here")
    page.wait_for_url("**/only-here.html")
    assert page.is_visible(f"text={ONE}")


def test_every_control_is_reachable_by_keyboard(visit):
    page = visit("matrix.html?q=scatter.slices")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    seen = []
    while page.evaluate("document.activeElement !== document.body"):
        assert page.evaluate(OUTLINE) not in ("none", "0px")
        seen.append(page.evaluate("document.activeElement.name || document.activeElement.hash"))
        page.keyboard.press("Tab")
    assert {"q", "chapter", "verdict", "column", "differ", f"#{ONE}--theirs"} <= set(seen)


def test_printed_page_is_white_and_has_no_navigation(visit):
    page = visit("matrix.html", color_scheme="dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(media="print")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == paper, paper) == (False, "rgb(255, 255, 255)")
    assert not page.is_visible("nav")
    assert page.is_visible(f"tr[id='{ONE}']")


PAGES = [
    "index.html",
    "matrix.html",
    "clauses/comm.html",
    "runs/theirs.html",
    "only-here.html",
    "all-agree.html",
    "differences.html",
    "divergences.html",
    "benchmarks.html",
    "data.html",
]


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_has_no_violation_of_accessibility_rules(visit, axe, scheme, size):
    visit("index.html", color_scheme=scheme, viewport=size)
    found = {}
    for address in PAGES:
        page = visit(address)
        page.evaluate(axe)
        result = page.evaluate("axe.run({preload: false, resultTypes: ['violations']})")
        rules = {rule["id"]: rule["nodes"][0]["html"][:200] for rule in result["violations"]}
        found |= {address: rules} if rules else {}
    assert found == {}
