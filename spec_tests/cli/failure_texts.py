"""The texts of failures, also without the parts that differ between runs."""

import itertools
import re
from collections.abc import Mapping

from spec_tests.harness.conformance.register import ANY

__all__ = ["shorten", "specific"]

#: Length in characters to which the text of a failure is cut. The rest is mostly tensor values.
_MAX_LENGTH = 120
#: Matches parts of a failure's text that differ between runs: indices of a path, tuples of
#: numbers, all text from a list on, absolute paths, and words with a digit, such as dtypes,
#: devices, addresses and threads.
_VARIABLE = re.compile(
    r"(?:\[[\w'\"-]+\])+(?= )|\((?:\d+|None|[, ])+\)|\[.*|(?<!\w)/[^\s']+|torch\.bool"
    r"|[\w.:-]*\d[\w.:-]*"
)


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
    """Return class and text of a failure with `ANY` in place of parts that differ between runs.

    A long text ends with a whole word.
    """
    kind, colon, text = failure.partition(": ")
    found = _VARIABLE.sub(ANY, text)
    if len(found) > _MAX_LENGTH:
        cut = found[: _MAX_LENGTH + 1]
        found = cut.rpartition(" ")[0] or cut[:_MAX_LENGTH]
    return f"{kind}{colon}{found.strip(f'{ANY} ')}"
