"""Descriptions of failures without drawn numbers, which group failures and identify records."""

import re
from collections.abc import Mapping

import pytest

#: The beginnings of texts of pytest that do not say what is wrong.
_BARE = ("assert ", "DID NOT RAISE ", "Regex pattern did not match")
#: Matches an error on a line of its own, as at the end of a traceback, which pytest may indent.
_ERROR = re.compile(r"^ *[\w.]+(?:Error|Exit|Interrupt|Warning): .+$", re.MULTILINE)
#: Matches the call and the devices above the difference of two implementations.
_CALL = re.compile(r".* disagree on\n(?:.*\n)*?with devices = .*\n")
#: Matches a difference of values, and the names of further differences.
_TENSORS = re.compile(r"(?P<path>.*) has values (?P<actual>.*), expected (?P<expected>.*)")
_OTHERS = re.compile(r"^  and (?:another|\d+ more) differences?: (.*)$", re.MULTILINE)
#: Matches the indices of a path.
_INDICES = re.compile(r"(?:\[[\w'\"-]+\])+(?= |$)")
#: Matches other parts that depend on the drawn numbers: containers of numbers, absolute paths, and
#: words with a digit, such as dtypes, devices, addresses and threads.
_DRAWN = re.compile(
    r"[\[{(][^\[\]{}()]*[\d…][^\[\]{}()]*[\]})]|(?<!\w)/[^\s']+|torch\.bool|[\w.:-]*\d[\w.:-]*"
)
#: Matches an item of a list and equal ones after it: their number may be drawn.
_REPEATED = re.compile(r"(?<![\w.])(\w+)(?:, \1)+(?![\w.])")
#: Matches the end of the text of a RecursionError, which depends on the depth of the stack.
_RECURSION = re.compile(r"(?<=maximum recursion depth exceeded) .*")
#: Matches a text in quotes. pytest shortens a long one in the middle, at a place that depends on
#: the whole text, such as the paths in it.
_QUOTED = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
#: Matches the operator of a comparison in an assert statement.
_OPERATOR = re.compile(r" (==|!=|is not|is|not in|in|<=|>=|<|>)(?: |$)")
#: The beginnings of the causes of tests that end their process, or do not end.
_ENDED = ("the test ends the process", "Timeout")
#: The length in characters to which a cause is cut.
_LENGTH = 160


def group_by_cause(differences: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Return causes with the ids of their clauses; the most frequent cause comes first.

    The text of a cause is that of its first clause. If it does not say what is wrong, it begins
    with the part of the specification.

    Args:
        differences: The difference of each clause.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for clause, difference in differences.items():
        key = group_key(clause, difference)
        groups.setdefault(key, []).append((find_cause(difference), clause))
    ordered = sorted(groups.values(), key=len, reverse=True)
    return [(_title(*members[0]), [clause for _, clause in members]) for members in ordered]


def _title(cause: str, clause: str) -> str:
    return f"{_part(clause)}: {cause}" if says_nothing(cause) else cause


def _part(clause: str) -> str:
    return ".".join(clause.split(".")[:2])


def group_key(clause: str, difference: str) -> str:
    """Return a text that is equal for failures with one cause.

    These are equal errors, equal differences in one part of the specification, such as
    ``comm.scatter``, and the assert statements of one clause.
    """
    line = _find_line(difference.removeprefix("AssertionError: "))
    if line.startswith("assert "):  # Without its values, it says nothing.
        return clause
    is_error = line.startswith(_ENDED) or _ERROR.match(line) is not None
    return f"{'' if is_error else _part(clause)}: {_QUOTED.sub('…', _without_drawn(line))}"


def fingerprint(item: pytest.Item, excinfo: pytest.ExceptionInfo[BaseException]) -> str:
    """Return what is the same in each failure of a test with one cause, without drawn numbers.

    It is the error, whichever statement raises it, or the difference and the test's statement.
    """
    kind = type(excinfo.value).__name__
    found = describe_difference(kind, str(excinfo.value))
    if not isinstance(excinfo.value, AssertionError | pytest.fail.Exception):
        return found
    own = [entry for entry in excinfo.traceback if entry.path == item.path]
    statement = " ".join(str(own[-1].statement).split()) if own else ""
    return f"{found} in: {_cut(statement)}" if statement else found


def describe_difference(kind: str, text: str) -> str:
    """Return the class of an error and its text without drawn numbers.

    The text of a comparison names the first fact that differs, and then all other facts that
    differ.
    """
    line = _find_line(text)
    if values := _TENSORS.fullmatch(line):
        found = f"{values['path']} has values {_relation(values['actual'], values['expected'])}"
    else:
        found = line
    parts = [_without_drawn(each) for each in found.split(", expected ")]
    others = _OTHERS.search(text)
    names = {_without_drawn(each) for each in others[1].split(", ")} if others else set()
    # A larger call may show the same fact at several indices.
    names = {name for name in names if not _names_fact_of(name, parts[0])}
    also = f"; also {', '.join(sorted(names))}" if names - {"..."} else ""
    described = _without_containers(", expected ".join(parts))
    return f"{kind}: {_cut(described)}{also}"


def _without_containers(text: str) -> str:
    """Return the text of an assert statement without containers, which pytest may shorten."""
    found = re.match(r"(?:AssertionError: )*assert (?:not )?", text)
    if found is None:
        return text
    parts = _OPERATOR.split(text[found.end() :])
    # Operands alternate with operators.
    parts[::2] = ["…" if re.match(r"[\[({]|$", each) else each for each in parts[::2]]
    return f"{found[0]}{' '.join(parts)}"


def _names_fact_of(name: str, described: str) -> bool:
    """Return whether ``name`` is the path and the fact of a described difference."""
    path, _, fact = name.rpartition(" ")
    return described.startswith((f"{path} has {fact} ", f"{name} is "))


def _without_drawn(text: str) -> str:
    text = _REPEATED.sub(r"\1", _RECURSION.sub("", text))
    text = _QUOTED.sub(lambda quoted: "…" if "..." in quoted[0] else quoted[0], text)
    changed = _DRAWN.sub("…", _INDICES.sub("", text))
    return text if changed == text else _without_drawn(changed)  # Containers are nested.


def _relation(actual: str, expected: str) -> str:
    """Return how the numbers in a text differ from those in another one."""
    found, right = (re.findall(r"[\w.+-]+", each) for each in (actual, expected))
    if sorted(found) == sorted(right):
        return "in another order"
    if len(found) != len(right):
        return "of another number"
    return "that differ" if any(each.strip("-+0.j") for each in found) else "zero"


def _cut(text: str) -> str:
    return text if len(text) <= _LENGTH else text[:_LENGTH].rpartition(" ")[0] or text[:_LENGTH]


def find_cause(difference: str) -> str:
    """Return the line of a difference that says what is wrong, cut to `_LENGTH`."""
    line = _find_line(difference.removeprefix("AssertionError: "))
    return line if len(line) <= _LENGTH else f"{_cut(line)} …"


def _find_line(difference: str) -> str:
    text = _CALL.sub("", difference, count=1).lstrip()
    errors = _ERROR.findall(text) if "Traceback" in text else []
    line = errors[-1] if errors else text.partition("\n")[0]
    _, is_error, error = line.partition("result is the error builtins.")
    if is_error:  # Its cause is the error, whatever was expected.
        line = error.partition(", expected ")[0]
    return line.strip()


def says_nothing(cause: str) -> bool:
    """Return whether only the clause of a test says what is wrong."""
    return cause.startswith(_BARE)
