"""Names that may stand in an address, in the name of a file and after a ``#``."""

import re

__all__ = ["slug"]


def slug(text: str) -> str:
    """``text`` with every run of other signs than letters, digits, ``._-`` as one ``-``."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-") or "unnamed"
