"""Parse a page of the site: its text, links and attributes."""

from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    """The text, links and attributes of one page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        #: The addresses of the links, and of the files that the page loads, such as style sheets.
        self.links: list[str] = []
        self.loaded: list[str] = []
        #: The ids and tags of all elements, and the names of all attributes.
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """Record the tag, attributes and links of an element."""
        values = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.attributes.extend(values)
        self.ids.extend(value for name, value in values.items() if name == "id")
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag not in ("use", "a"):
            self.loaded.extend(values[name] for name in ("href", "src") if name in values)

    def handle_data(self, data: str) -> None:
        """Record a piece of text."""
        self.text += data


def read_page(path: Path) -> Page:
    """Parse the page in the file ``path`` and return it."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page
