"""The texts of failures, also without the parts that differ between runs."""

import itertools
import re
from collections.abc import Mapping

__all__ = ["shorten", "specific"]

#: Length in characters to which the text of a failure is cut. The rest is mostly tensor values.
_MAX_LENGTH = 60
#: Matches parts of a failure's text that differ between runs: indices of a path, all text from a
#: list on, absolute paths, and words with a digit, such as dtypes, devices, addresses and threads.
_VARIABLE = re.compile(
    r"\[[\w'\"-]+\](?=[\[ ])|\[.*|(?<!\w)/[^\s']+|torch\.bool|[\w.:-]*\d[\w.:-]*"
)
#: The least length in characters of a text that is specific enough for a record.
_MIN_LENGTH = 10


def specific(test: Mapping[str, str]) -> str:
    """Return class and line of a failure; of a disagreement, the line with the difference."""
    failure = test.get("failure", test.get("reason", ""))
    kind, colon, text = failure.partition(": ")
    lines = test.get("difference", "").strip().splitlines()
    if text.endswith(" disagree on") and len(lines) > 1:
        pairs = itertools.pairwise(lines)
        after = [second for first, second in pairs if first.startswith("with devices = ")]
        text = after[0].strip() if after else text
    return f"{kind}{colon}{text}"


def shorten(failure: str) -> str:
    """Return class and text of a failure without the parts that differ between runs.

    The text is the first part that is long enough, else the longest one.
    """
    kind, colon, text = failure.partition(": ")
    parts = [part.strip() for part in _VARIABLE.sub("\0", text).split("\0")]
    part = next((part for part in parts if len(part) >= _MIN_LENGTH), max(parts, key=len))
    return f"{kind}{colon}{part[:_MAX_LENGTH].strip()}"
