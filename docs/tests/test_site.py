"""The built site: links, anchors, languages of code blocks, errors and names that it must have."""

import ast
import importlib
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from sphinx.util.inventory import InventoryFile

from docs import code_blocks, page_text
from spec_tests.reporting.tests.page_reader import read_page

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "docs" / "_build" / "html"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
PUBLIC_MODULES = ["impl", "impl.comm", "impl.functions", "impl.scatter_gather", "impl.replicate"]
PUBLIC_MODULES += ["impl.parallel_apply", "impl.data_parallel", "impl.distributed"]
#: The number of words that identify a text.
MIN_WORDS = 3


@pytest.fixture(scope="session")
def site():
    """Return ids and links of each page. The site must have been built before."""
    if not SITE.exists():
        pytest.exit("build the site first: tox -e docs", returncode=1)
    return {path: read_page(path) for path in SITE.rglob("*.html")}


def test_every_link_leads_to_a_file_and_an_anchor(site):
    broken, count = [], 0
    for page, found in site.items():
        for link in {*found.links, *found.loaded}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if target.is_dir():
                target /= "index.html"
            has_anchor = target not in site or not parts.fragment
            has_anchor = has_anchor or unquote(parts.fragment) in site[target].ids
            if not target.exists() or not has_anchor:
                broken.append((str(page.relative_to(SITE)), link))
    assert broken == []
    assert count > 1000


def test_every_public_name_is_in_the_api_reference():
    with (SITE / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, path: path)
    known = {name for kind in inventory for name in inventory[kind]}
    names = {
        name
        for module in PUBLIC_MODULES
        for name, value in vars(importlib.import_module(module)).items()
        if name in importlib.import_module(module).__all__ and callable(value)
    }
    assert sorted(name for name in names if not any(k.endswith(f".{name}") for k in known)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_code_block_has_a_language_that_is_checked(page):
    text = page_text.expand(page)
    fences = re.findall(r"^ *```(.*)\n(?:.*\n)*? *```$", text, re.M)
    languages = {fence.strip() for fence in fences if not fence.startswith("{")}
    assert languages <= set(code_blocks.EVALUATORS)


def test_every_error_is_explained():
    explained = explained_texts((ROOT / "docs" / "errors.md").read_text(encoding="utf-8"))
    missing = [
        (str(path.relative_to(ROOT)), fragments)
        for path in sorted((ROOT / "impl").rglob("*.py"))
        for fragments in error_texts(path)
        if not any(is_explained(fragment, explained) for fragment in fragments)
    ]
    assert missing == []


def explained_texts(page):
    """Return the parts between ellipses of all headings and quoted texts, without code blocks."""
    prose = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    texts = re.findall(r"^###? (.*)|`([^`\n]+)`", prose, re.M)
    return [part.strip() for pair in texts for text in pair for part in text.split("…")]


def is_explained(fragment, explained):
    """Return whether a heading or quoted text has this text, or is a part of it."""
    return any(
        fragment.strip() in part or (len(part.split()) >= MIN_WORDS and part in fragment)
        for part in explained
    )


def error_texts(path):
    """Yield the constant parts of each text that a file raises."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            constants = [
                each.value
                for each in ast.walk(node.exc.args[0])
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
            fragments = [text for text in constants if len(text.split()) >= MIN_WORDS]
            if fragments:
                yield fragments
