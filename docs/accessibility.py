"""Changes of the built pages that axe-core asks for, and that the theme has no option for."""

import re
from pathlib import Path

from sphinx.application import Sphinx

__all__ = ["setup"]

#: Pattern -> replacement. No replacement matches its pattern: a page may be changed twice.
_CHANGES = {
    # Code blocks and tables that scroll can be scrolled with the keyboard.
    r"<pre>": '<pre tabindex="0">',
    r'<div class="table-wrapper ([\w -]*)">': r'<div class="table-wrapper \1" tabindex="0">',
    r'<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    r'<aside class="(sidebar|toc)-drawer">': r'<aside class="\1-drawer" aria-label="\1">',
    r"<th class=\"head\"><p></p></th>": "<td></td>",
    r'(?<!</h1>)<div id="search-results">': '<h1>Search</h1><div id="search-results">',
}


def setup(app: Sphinx) -> None:
    """Change all pages at the end of the build."""
    app.connect("build-finished", _change_pages)


def _change_pages(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.name != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for pattern, replacement in _CHANGES.items():
            text = re.sub(pattern, replacement, text)
        path.write_text(text, encoding="utf-8")
