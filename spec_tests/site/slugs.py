"""Turn a text into a name for addresses, files and anchors."""

import re

__all__ = ["slug"]


def slug(text: str) -> str:
    """Replace each run of characters other than letters, digits and ``._-`` by one ``-``."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-") or "unnamed"
