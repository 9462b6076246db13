"""Group the clauses that a run violates by cause: the error or the difference, without values."""

import re
from collections.abc import Iterable, Mapping

from spec_tests.site.evidence import Evidence

__all__ = ["group_by_cause"]

#: Matches the values in a text: containers, numbers, addresses, and texts in quotes.
_VALUES = re.compile(r"[{\[].*[}\]]|0x[0-9a-f]+|\d[\d.]*|'[^']*'|\"[^\"]*\"")
#: Matches an error on a line of its own, as at the end of a traceback.
_ERROR = re.compile(r"^[\w.]+(?:Error|Exit|Interrupt): .+$", re.MULTILINE)
#: Matches the call and the devices above the difference of two implementations.
_CALL = re.compile(r".* disagree on\n(?:.*\n)*?with devices = .*\n")
#: The length in characters to which a cause is cut.
_LENGTH = 160


def group_by_cause(evidence: Mapping[str, Evidence], ids: Iterable[str]) -> dict[str, list[str]]:
    """Return the ids of clauses for each cause; the most frequent cause comes first.

    Two clauses have the same cause if their errors, or the first lines of their differences, are
    equal apart from values. The text of a cause is that of its first clause.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for name in ids:
        cause = _find_cause(evidence[name].difference)
        # Without its values, an assert statement of a test says nothing.
        key = cause if cause.startswith("assert ") else _VALUES.sub("…", cause)
        groups.setdefault(key, []).append((cause, name))
    ordered = sorted(groups.values(), key=len, reverse=True)
    return {members[0][0]: [name for _, name in members] for members in ordered}


def _find_cause(difference: str) -> str:
    """Return the line of a difference that says what is wrong."""
    text = _CALL.sub("", difference.removeprefix("AssertionError: "), count=1)
    errors = _ERROR.findall(text) if "Traceback" in text else []
    line = errors[-1] if errors else text.partition("\n")[0]
    _, is_error, error = line.partition("result is the error builtins.")
    if is_error:  # Its cause is the error, whatever was expected.
        line = error.partition(", expected ")[0]
    return line.strip()[:_LENGTH]
