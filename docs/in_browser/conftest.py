"""Chromium and axe-core for the tests of built pages."""

import os
import shutil
import subprocess

import pytest
from playwright.sync_api import sync_playwright

from spec_tests.harness.environment.topology import not_run

#: Names of Chromium's program.
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
#: Name and version of the npm package axe-core.
AXE = "axe-core@4"


@pytest.fixture(scope="session")
def browser():
    """Yield Chromium without a window: the program in ``CHROMIUM``, or the system's."""
    names = filter(None, [os.environ.get("CHROMIUM"), *PROGRAMS])
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        not_run("needs Chromium: apt-get install chromium, or name one in CHROMIUM")
    # The sandbox does not work in containers, and is not needed for pages that are built here.
    options = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    options += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=options)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """Return the JavaScript source of axe-core, which checks accessibility rules."""
    npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("npm")
    if npm is None:
        not_run("needs npm, which installs axe-core")
    command = [npm, "install", "--no-save", "--silent", "--prefix", str(folder), AXE]
    subprocess.run(command, check=True)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
