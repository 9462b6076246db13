"""The configuration of Sphinx. ``tox -e docs`` builds the site in ``docs/_build/html``."""

import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs import page_text, results_pages  # noqa: E402 - needs the path
from spec_tests.reporting.pages import STATIC  # noqa: E402 - needs the path

project = "torch-parallel-spec"
copyright = "the contributors"  # noqa: A001 - Sphinx's name
author = "the contributors"
html_title = "torch-parallel-spec"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # some attributes are properties, which autodoc lists, too

copybutton_prompt_text = "$ "  # not copied
copybutton_only_copy_prompt_lines = True

# Without a network, names of Python and PyTorch are text without links.
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", (None, "empty.inv")),
    "torch": ("https://docs.pytorch.org/docs/stable", (None, "empty.inv")),
}
intersphinx_timeout = 5

html_theme = "furo"
html_static_path = ["static", str(STATIC)]
html_css_files = ["site.css", "results.css"]
html_copy_source = False
html_show_sourcelink = False

page_text.write_pages()  # Sphinx then finds them.


def _expand_includes(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = page_text.expand(Path(app.env.doc2path(docname)))


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the functions that change or add pages."""
    app.connect("source-read", _expand_includes)
    results_pages.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
