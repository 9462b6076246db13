"""The built site in a browser: no page is too wide, and axe-core finds nothing.

``tox -e docs-browser`` runs these tests after ``tox -e docs``. They need Chromium and npm.
"""

from pathlib import Path

import pytest

SITE = Path(__file__).resolve().parents[1] / "_build" / "html"
#: Sizes of the window in pixels.
SIZES = {"phone": {"width": 400, "height": 800}, "desk": {"width": 1300, "height": 900}}
#: Pages of one kind; only the first is tested.
KINDS = ("results/runs/",)


def addresses():
    """Return the addresses of all pages, but one page of each kind of results."""
    found = [path.relative_to(SITE).as_posix() for path in sorted(SITE.rglob("*.html"))]
    seen = set()
    for address in found:
        kind = next((kind for kind in KINDS if address.startswith(kind)), address)
        if kind not in seen:
            seen.add(kind)
            yield address


@pytest.fixture(scope="module", params=["light", "dark"])
def scheme(request):
    """Return the colour scheme that the browser asks for."""
    return request.param


@pytest.fixture(scope="module", params=list(SIZES))
def tab(request, browser, scheme):
    """Yield an empty tab of one size and colour scheme."""
    context = browser.new_context(viewport=SIZES[request.param], color_scheme=scheme)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("address", list(addresses()))
def test_page_fits_and_follows_the_accessibility_rules(tab, axe, address):
    tab.goto(f"file://{SITE}/{address}")
    tab.evaluate(axe)
    result = tab.evaluate("axe.run({preload: false, resultTypes: ['violations']})")
    rules = {
        rule["id"]: [node["html"][:160] for node in rule["nodes"]][:3]
        for rule in result["violations"]
    }
    assert rules == {}
    assert tab.evaluate("document.documentElement.scrollWidth") <= tab.viewport_size["width"]
