"""Parse a page of the site: its text, links and attributes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path


@dataclass
class Page(HTMLParser):
    """The text, links and attributes of one page.

    Attributes:
        links: The addresses of the links.
        loaded: The addresses of the files that the page loads, such as style sheets.
        ids: The ids of all elements.
        tags: The tags of all elements.
        attributes: The names of all attributes.
        words: The pieces of the text.
    """

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    @property
    def text(self) -> str:
        """The whole text of the page."""
        return "".join(self.words)

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
        self.words.append(data)


def read_page(path: Path) -> Page:
    """Parse the page in the file ``path`` and return it."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page
