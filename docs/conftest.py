"""Collect the code blocks of all pages as tests."""

import pytest
from sybil import Document, Sybil
from sybil.parsers.myst import CodeBlockParser

from docs import code_blocks, page_text

page_text.write_pages()  # Before the pages are collected.


class Page(Document):
    """A page with the text that it includes."""

    @classmethod
    def parse(cls, path, *parsers, encoding="utf-8"):
        """Return the page with its code blocks."""
        page = cls(page_text.expand(page_text.Path(path)), path)
        for parser in parsers:
            for region in parser(page):
                page.add(region)
        return page


pytest_collect_file = Sybil(
    parsers=[CodeBlockParser(*each) for each in code_blocks.EVALUATORS.items()],
    pattern="*.md",
    document_types={".md": Page},
).pytest()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Enable the accelerator before the first block."""
    item.config.pluginmanager.getplugin("spec_tests.machine.fixtures").topology_of(item.config)
