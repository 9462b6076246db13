"""Group failures by cause: the error or the difference, without values."""

import re
from collections.abc import Mapping
from typing import TypeVar

__all__ = ["ENDED", "find_cause", "group_by_cause", "is_error", "key_of", "says_nothing"]

_Name = TypeVar("_Name")

#: Matches the values in a text: indices of a path, containers, numbers, addresses, texts in
#: quotes, and the expected class of an error.
_VALUES = re.compile(
    r"(?:\[[\w'\"-]+\])+(?= )|[{\[].*[}\]]|0x[0-9a-f]+|\d[\d.]*|'[^']*'|\"[^\"]*\""
    r"|(?<=DID NOT RAISE ).+"
)
#: Matches a container or a text in quotes without its end, which `find_cause` has cut off.
_CUT = re.compile(r"[{\['\"].*$")
#: The beginnings of texts of pytest that do not say what is wrong.
_BARE = ("assert ", "DID NOT RAISE ", "Regex pattern did not match")
#: Matches an error on a line of its own, as at the end of a traceback.
_ERROR = re.compile(r"^[\w.]+(?:Error|Exit|Interrupt|Warning): .+$", re.MULTILINE)
#: Matches the call and the devices above the difference of two implementations.
_CALL = re.compile(r".* disagree on\n(?:.*\n)*?with devices = .*\n")
#: The beginnings of the causes of tests that end their process, or do not end.
ENDED = ("the test ends the process", "Timeout")
#: The length in characters to which a cause is cut.
_LENGTH = 160


def group_by_cause(differences: Mapping[_Name, str]) -> dict[str, list[_Name]]:
    """Return the names for each cause; the most frequent cause comes first.

    Two names have the same cause if their errors, or the first lines of their differences, are
    equal apart from values. The text of a cause is that of its first name.
    """
    groups: dict[str, list[tuple[str, _Name]]] = {}
    for name, difference in differences.items():
        cause = find_cause(difference)
        groups.setdefault(key_of(cause), []).append((cause, name))
    ordered = sorted(groups.values(), key=len, reverse=True)
    return {members[0][0]: [name for _, name in members] for members in ordered}


def find_cause(difference: str) -> str:
    """Return the line of a difference that says what is wrong."""
    text = _CALL.sub("", difference.removeprefix("AssertionError: "), count=1).lstrip()
    errors = _ERROR.findall(text) if "Traceback" in text else []
    line = errors[-1] if errors else text.partition("\n")[0]
    _, is_error, error = line.partition("result is the error builtins.")
    if is_error:  # Its cause is the error, whatever was expected.
        line = error.partition(", expected ")[0]
    return line.strip()[:_LENGTH]


def is_error(cause: str) -> bool:
    """Return whether a cause is an error, or the end of a process, not a wrong result."""
    return cause.startswith(ENDED) or _ERROR.match(cause) is not None


def says_nothing(cause: str) -> bool:
    """Return whether only the clause of a test says what is wrong."""
    return cause.startswith(_BARE)


def key_of(cause: str) -> str:
    """Return a cause without its values. Equal causes have equal keys."""
    # Without its values, an assert statement of a test says nothing.
    return cause if cause.startswith("assert ") else _CUT.sub("…", _VALUES.sub("…", cause))
