"""What people read is what is true: the README's code runs, generated pages are current."""

import re
from pathlib import Path

import pytest

from spec_tests.harness import clauses, register

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CODE = "\n".join(re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL))
PAGES = [path for path in ROOT.rglob("*.md") if not {".tox", ".venv"} & set(path.parts)]


def test_the_examples_of_the_readme_run():
    exec(compile(CODE, "README.md", "exec"), {"__name__": "readme"})


def test_the_table_of_differences_is_the_register():
    table = register.as_markdown(register.load(register.FOLDER / "torch.nn.parallel.toml"))
    assert table in README, (
        "python -m spec_tests.harness.register prints the table that belongs there"
    )


def test_the_specification_for_reading_is_current():
    page = (ROOT / "spec_tests" / "SPECIFICATION.md").read_text(encoding="utf-8")
    assert page == clauses.as_markdown(clauses.load())


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]
