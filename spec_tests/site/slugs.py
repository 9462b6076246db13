"""Turn a text into a name for addresses, files and anchors."""

import re

__all__ = ["slug"]


def slug(text: str) -> str:
    """Return ``text`` with one ``-`` for each run of characters that addresses should not have.

    Letters, digits, ``.``, ``_`` and ``-`` are kept.
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-") or "unnamed"
