"""What people read is what is true: the README's code runs, generated pages are current."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from spec_tests.harness.conformance import pages, register

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CODE = "\n".join(re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL))
PAGES = [path for path in ROOT.rglob("*.md") if not {".tox", ".venv"} & set(path.parts)]


def test_the_examples_of_the_readme_run():
    # In an interpreter of its own, as a reader's: they change what torch.nn.DataParallel is.
    subprocess.run([sys.executable, "-W", "error", "-c", CODE], cwd=ROOT, check=True)


def test_generated_pages_are_current():
    assert not list(pages.stale()), (
        "python -m spec_tests.harness.conformance.pages --write writes them"
    )


def test_a_page_that_is_not_current_is_found(monkeypatch, tmp_path):
    page = tmp_path / "PAGE.md"
    monkeypatch.setattr(pages, "PAGES", {page: lambda: "new"})
    assert pages.stale() == {page: "new"}
    page.write_text("new")
    assert pages.stale() == {}


def test_every_divergence_says_what_it_is_about():
    records = register.load(pages.REGISTER)
    assert {each.id for each in records} == set(register.titles(pages.REGISTER))


def test_the_readme_is_short_enough_for_a_newcomer():
    assert len(README.splitlines()) <= 120


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]
