"""The code in the README runs, generated pages are up to date, and links lead to files."""

import re
import subprocess
import sys
from collections import Counter

import pytest

from reports.publishing import specification
from spec_tests.machine import clauses, register
from spec_tests.machine.tests.fixtures import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
CODE = "\n".join(re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL))
PAGES = [path for path in ROOT.rglob("*.md") if not {".tox", ".venv"} & set(path.parts)]


def test_examples_of_the_readme_run():
    # In a new interpreter, because an example may replace torch.nn.DataParallel.
    subprocess.run([sys.executable, "-W", "error", "-c", CODE], cwd=ROOT, check=True)


def test_generated_pages_are_up_to_date():
    assert not list(specification.stale()), "run python -m reports build"


def test_pages_have_the_numbers_of_clauses():
    found = Counter(each.is_about_target for each in clauses.load().values())
    target, devices = found[True], found[False]
    suite = " ".join((ROOT / "spec_tests/README.md").read_text(encoding="utf-8").split())
    assert f"{target} clauses about an implementation, and {devices} about devices." in README
    assert f"has {target + devices} clauses, of which {target} are about the target" in suite


def test_every_divergence_has_a_title():
    records = register.load(specification.REGISTER)
    assert {each.id for each in records} == set(
        register.read_tables(specification.REGISTER)["titles"]
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_an_existing_file(page):
    links = re.findall(
        r"\]\(([^)#:\s]+)(?:#[^)\s]*)?(?: [^)]*)?\)", page.read_text(encoding="utf-8")
    )
    assert not [link for link in links if not (page.parent / link).exists()]
