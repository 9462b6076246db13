"""A failure: what differs, why, and in which call.

A check of the suite makes a `Failure` and raises it as a `CheckError`. `of_exception` makes one of
any other exception. Terminal, registers, ``draft``, ``diff`` and reports compare its facts, not
its text.
"""

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any, Literal, NamedTuple, NoReturn

import pytest

#: The kinds of failures.
Kind = Literal[
    "differs",
    "accepted",
    "refused",
    "error",
    "race",
    "state",
    "time",
    "ended",
    "not-offered",
    "stale-record",
    "assert",
]
#: Kinds of failures that have one cause in all parts of the specification.
_ANYWHERE = ("error", "ended", "time", "stale-record")
#: The words of facts, explained in `registers/README.md`. `facts` of a clause has no others.
#: The places of calls of different functions:
PLACES = (
    *("assert", "error", "gradient", "input", "memory"),
    *("output", "process", "state", "warnings"),
)
#: The places of single tests, which name a part of their results or an argument ``place``, if
#: clauses are about them:
PARTS = (
    *("attributes", "buffers", "children", "count", "former_parameters", "is_replica", "kind"),
    *("layouts", "order", "parameters", "penalty", "second gradient", "shared_buffers"),
    *("shared_modules", "sharing", "tensors", "training", "versions"),
)
#: The properties of a value. Each is also the place of tests that compare nothing else.
PROPERTIES = (
    *("class", "dtype", "shape", "strides", "device", "layout", "coalesced", "requires_grad"),
    *("aliasing", "values", "members", "value", "identity", "missing", "not None"),
    *("count or order", "race", "early free", "ended", "time limit"),
    *("current device", "current stream"),
)
#: What follows the first word of a place: ``gradient of weight``, ``output.hidden``.
_FIRST_WORD = re.compile(r"[ .]")
#: The length in characters to which a text is cut, and that of a line and of a fact.
_MAX_TEXT, _MAX_LINE, _MAX_FACT = 1500, 160, 80
#: The length in characters of a title, which may have two values.
_MAX_TITLE = 280
#: A short part of a word at the end or the beginning of a text, with the space.
_PART_AT_END, _PART_AT_BEGINNING = re.compile(r" \S{1,20}$"), re.compile(r"^\S{1,20} ")
#: A part of an error's text that depends on the drawn values: numbers and words with a digit,
#: containers, dtypes, and absolute paths.
_DRAWN = re.compile(
    r"[\w.:/-]*\d[\w.:/-]*|[\[({<][^\[\](){}<>]*[\])}>]|[\[({<].*|torch\.\w+|(?<!\w)/\S+"
    r"|(?<=maximum recursion depth exceeded).*"  # Where it is exceeded depends on the stack.
)
#: The least length of the beginning of an error's text that is taken for the whole.
_MIN_BEGINNING = 12
#: An error on a line of its own, as at the end of a traceback in a text.
_ERROR = re.compile(r"^ *([\w.]+(?:Error|Exit|Interrupt|Warning)): (.+)$", re.MULTILINE)
#: Packages whose frames do not raise an assertion of a test.
_TOOLS = ("_pytest", "pytest", "hypothesis", "contextlib")
#: The folder of the suite. Each chapter is a folder in it, with tests and their clauses.
SUITE = Path(__file__).parent


class Fact(NamedTuple):
    """A fact that differs, without numbers that Hypothesis draws: ``output: strides``.

    Args:
        place: The value: ``output``, ``gradient``, ``input``, ``error``, ``state``, ...
        name: The property of the value, or the class of an error and a part of its text.
    """

    place: str
    name: str

    def __str__(self) -> str:
        return f"{self.place}: {self.name}"

    @staticmethod
    def is_declared(text: str) -> bool:
        """Return whether a place, a property, or both as ``place: property`` are declared."""
        place, _, name = text.partition(": ")
        known = {*PLACES, *PARTS, *PROPERTIES}
        return place.removeprefix("error of ") in known and name in {"", *PROPERTIES}

    @property
    def is_text_of_error(self) -> bool:
        """Whether the name is a class, or "text", and a part of an error's text."""
        return self.place == "error" and ": " in self.name


@dataclass(frozen=True)
class Failure:
    """A failure of a test.

    Args:
        kind: ``accepted`` if a call that must be refused is not, ``refused`` if another call is,
            ``stale-record`` if the test passes although a record expects its failure.
        facts: The facts that differ, in all failing calls that Hypothesis has drawn.
        text: The first difference, for people.
        error: One line for lists of causes, if the text does not begin with it: the class and the
            first line of the target's error.
        call: The smallest failing call, as code.
    """

    kind: Kind
    facts: tuple[Fact, ...]
    text: str
    error: str = ""
    call: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """The kind and the sorted facts. If they are equal, a test fails in the same way."""
        return self.kind, *sorted(self.fact_texts)

    @property
    def fact_texts(self) -> list[str]:
        """The facts as ``expects`` of a register has them."""
        return list(dict.fromkeys(map(str, self.facts)))

    def is_expected(self, expects: Sequence[str]) -> bool:
        """Return whether a record that ``expects`` facts expects all facts of the failure.

        The text of an error may be a part of the text in the fact, or of the printed text.
        """
        return bool(self.facts) and all(
            fact in expects or any(_is_error_with(fact, entry) for entry in expects)
            for fact in self.fact_texts
        )

    @property
    def title(self) -> str:
        """One line that says what is wrong."""
        line = (self.error or next(iter(self.text.splitlines()), "")).strip()
        if self.kind == "assert" and self.facts and (line == "assert False" or " " not in line):
            # pytest shows no values, or only the message of the assertion.
            message = "" if line == "assert False" else f": {line}"
            line = f"assert {self.facts[0].name}{message}"
        return shorten(line, _MAX_TITLE)

    @property
    def is_stale(self) -> bool:
        """Whether the test fails only because a record is out of date."""
        return self.kind == "stale-record"

    @property
    def is_bare(self) -> bool:
        """Whether only the clause of the test says what is wrong, as with a RecursionError."""
        is_bare_assert = self.kind == "assert" and self.text.startswith("assert ")
        return is_bare_assert or any("RecursionError" in text for text in self.fact_texts)

    def group(self, clause: str) -> tuple[str, ...]:
        """Return a key that is equal for failures of clauses with one cause.

        One text of the target's errors is one cause everywhere, and one named part of results,
        such as ``former_parameters``, is one in its chapter. A value without a name, which is no
        tensor, says little: it is a cause of its clause.
        """
        if self.kind == "assert":
            return clause, *self.key
        part = ".".join(clause.split(".")[:2])
        if errors := [str(fact) for fact in self.facts if fact.is_text_of_error]:
            return part if self.is_bare else "", errors[0]
        places = {place for place, _ in self.facts if _FIRST_WORD.split(place)[0] not in PLACES}
        if places and self.kind == "differs":
            return clause.partition(".")[0], *sorted(places)
        if self.kind == "differs" and all(fact.name == "value" for fact in self.facts):
            return clause, *self.key
        return "" if self.kind in _ANYWHERE else part, *self.key

    def to_json(self) -> dict[str, object]:
        """Return the fields that are not empty, for a JSON file. Long texts are cut.

        `input_files.convert` makes the failure again.
        """
        fields = {name: value for name, value in vars(self).items() if value or name == "facts"}
        return fields | {
            name: shorten(fields[name], _MAX_TEXT) for name in ("text", "call") if name in fields
        }

    def dumps(self) -> str:
        """Return the JSON of the failure, in ASCII: pytest-xdist refuses lone surrogates."""
        return json.dumps(self.to_json())


class CheckError(AssertionError):
    """The error of a check. A target may raise another one with the text alone.

    Args:
        text: The text.
        failure: The failure; None if the error was made from its text.
    """

    def __init__(self, text: str, failure: Failure | None = None) -> None:
        super().__init__(text)
        self.failure = failure


#: The failures of the running test, of all threads. Appending to a list is atomic.
_noted: list[Failure] = []


def noted_error(failure: Failure, text: str = "") -> CheckError:
    """Note a failure of the running test, and return the error to raise.

    A failure inside a replica may reach the test as another error with the same text; see
    `of_exception`.

    Args:
        failure: The failure.
        text: The text of the error, if it is not the failure's.
    """
    _noted.append(failure)
    return CheckError(text or failure.text, failure)


def end_test(failure: Failure) -> NoReturn:
    """End the test with a failure that no statement of a test has raised, without a traceback."""
    _noted.append(failure)
    error: Any = pytest.fail.Exception(failure.text, pytrace=False)
    error.failure = failure
    raise error


def note(failure: Failure) -> None:
    """Note a failure of the running test."""
    _noted.append(failure)


def forget() -> None:
    """Forget the failures of earlier tests."""
    _noted.clear()


def of_exception(error: BaseException, test: Path | None = None) -> Failure:
    """Return the failure that an exception of a test shows.

    Args:
        error: The exception.
        test: The file of the test.
    """
    try:
        own, text = getattr(error, "failure", None), str(error)
    except (Exception, SystemExit) as other:  # An object of the target raises it when it is shown.
        return of_hidden(error, other)
    if isinstance(own, Failure):
        return own
    for noted in reversed(_noted):  # A target has rewrapped the error.
        if noted.text in text:
            return noted
    if isinstance(error, AssertionError | pytest.fail.Exception):
        expression = _expression(error.__traceback__, test)
        if expression is not None:
            # A statement ``with`` may have several managers.
            raises = any(each.startswith("pytest.raises(") for each in expression.split(", "))
            kind: Kind = "accepted" if raises and "DID NOT RAISE" in text else "assert"
            if raises and "\n" in text:  # The first line is equal.
                text = "; ".join(line.strip() for line in text.splitlines()[1:])
            return Failure(
                kind, (Fact("assert", expression),), text or f"assert {expression}", _cause(text)
            )
    name = type(error).__name__
    return Failure("error", (error_fact(name, text),), f"{name}: {text}", error_line(name, text))


def of_hidden(error: BaseException, other: BaseException) -> Failure:
    """Return the failure that an exception shows that cannot be shown, because of another one."""
    name = type(error).__name__
    text = f"{name}: the error cannot be shown, because its text raises {type(other).__name__}"
    return Failure("error", (Fact("error", f"{name}: cannot be shown"),), text)


def line_in_package(error: BaseException, package: str) -> str:
    """Return the last place of an error in a package, ``package/file.py:67``, or an empty text."""
    frames = walk_tb(error.__traceback__)
    names = ((str(frame.f_globals.get("__name__")), frame, line) for frame, line in frames)
    own = [(frame, line) for name, frame, line in names if f"{name}.".startswith(f"{package}.")]
    if not own:
        return ""
    frame, line = own[-1]
    return f"{'/'.join(Path(frame.f_code.co_filename).parts[-2:])}:{line}"


def error_line(name: str, text: str) -> str:
    """Return an error as one line: its class, and the error of a replica or its first line."""
    line = _cause(text) or text.strip().partition("\n")[0]
    # The error of a replica begins with its own class.
    return line if line.startswith(f"{name}: ") else f"{name}: {line}" if line else name


def error_fact(name: str, text: str, place: str = "error") -> Fact:
    """Return the fact about an error with the class ``name``."""
    line = text.partition("\n")[0]
    if cause := _cause(text):  # The error of a replica shows its traceback.
        inner, _, line = cause.partition(": ")
        name = name if inner.rpartition(".")[2] == name else f"{name}: {inner}"
    return Fact(place, f"{name}: {_without_drawn(line) or '…'}")


def _cause(text: str) -> str:
    """Return the error in the last line of a traceback in a text; empty if there is none."""
    errors = _ERROR.findall(text) if "Traceback" in text else []
    return ": ".join(errors[-1]) if errors else ""


def _without_drawn(line: str) -> str:
    parts = [_strip(part) for part in _DRAWN.split(line)]
    long = parts[0] if len(parts[0]) >= _MIN_BEGINNING else max(parts, key=len)
    return long if len(long) <= _MAX_FACT else long[:_MAX_FACT].rpartition(" ")[0]


def _strip(part: str) -> str:
    part = part.strip(" :,;.=`")
    return part.rstrip("'") if part.count("'") % 2 else part


def _is_error_with(fact: str, expected: str) -> bool:
    """Return whether a fact is about an error of the class and with the text in ``expected``."""
    place, _, rest = expected.partition(": ")
    name, _, part = rest.partition(": ")
    is_of_class = bool(part) and fact.startswith(f"{place}: {name}: ")
    return is_of_class and (part in fact or (_without_drawn(part) or "…") in fact)


def show(value: object) -> str:
    """Return the repr of a value that the target may have changed."""
    try:
        return repr(value)
    except (Exception, SystemExit) as error:
        return f"a {type(value).__name__} that cannot be shown: {type(error).__name__}"


def shorten(text: str, length: int) -> str:
    """Leave out the middle of a long text, because a traceback ends with its error."""
    if len(text) <= length:
        return text
    first, last = text[: length // 2], text[-(length // 2) :]
    return f"{_PART_AT_END.sub('', first)} … {_PART_AT_BEGINNING.sub('', last)}"


def _expression(traceback: TracebackType | None, test: Path | None) -> str | None:
    """Return the statement of the suite that has raised an assertion; None for other code."""
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in walk_tb(traceback)
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _TOOLS
    ]
    if not frames:
        return None
    file, line = frames[-1]
    path = Path(file)
    if path != test and SUITE not in path.parents:
        return None
    nodes = [node for node in _statements(path) if node.lineno <= line <= (node.end_lineno or 0)]
    if not nodes:
        return None
    innermost = max(nodes, key=lambda node: (node.lineno, node.col_offset))
    if isinstance(innermost, ast.Assert):
        text = ast.unparse(innermost.test)
    elif isinstance(innermost, ast.With):
        text = ", ".join(ast.unparse(item.context_expr) for item in innermost.items)
    else:
        text = ast.unparse(innermost).partition("\n")[0]
    return shorten(text, _MAX_LINE)


@cache
def _statements(path: Path) -> tuple[ast.stmt, ...]:
    try:
        tree = ast.parse(path.read_text("utf-8"))
    except (OSError, SyntaxError):
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.stmt))
