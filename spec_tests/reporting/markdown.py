"""Tables and texts of Markdown pages."""

from collections.abc import Sequence


def format_table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a table with escaped cells."""
    return [_table_line(head), _table_line(["---"] * len(head)), *map(_table_line, rows)]


def _table_line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(escape(str(cell)) for cell in cells) + " |"


def escape(text: str) -> str:
    """Return ``text`` with the special characters of Markdown and HTML escaped."""
    text = " ".join(text.split())
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), ("|", "&#124;")):
        text = text.replace(character, entity)
    return text
