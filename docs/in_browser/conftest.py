"""Chromium and axe-core for the tests of the built site."""

import pytest
from playwright.sync_api import sync_playwright

from docs.in_browser import tools


@pytest.fixture(scope="session")
def browser():
    """Yield Chromium without a window."""
    # The sandbox does not work in containers, and is not needed for pages that are built here.
    options = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        path = tools.find_chromium()
        chromium = playwright.chromium.launch(executable_path=path, args=options)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """Return the JavaScript source of axe-core, which checks accessibility rules."""
    return tools.install_axe(tmp_path_factory.mktemp("npm"))
