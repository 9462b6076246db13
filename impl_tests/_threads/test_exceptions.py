"""impl._threads.exceptions: what becomes of an exception between a replica and its caller."""

import re
from contextlib import suppress
from dataclasses import dataclass

import pytest
import torch

from impl._threads.exceptions import CapturedError, capture, reraise
from impl_tests.samples import fail_with

WHERE = "in replica 2 on device 3"
REPORT = "Caught {} in replica 2 on device 3.\nOriginal Traceback (most recent call last):\n"


class ClassMessageError(Exception):
    """Takes its text by position, though its class has a ``message``."""

    message = "of the class"


class KeywordMessageError(Exception):
    """Takes its text by name alone."""

    message = "of the class"

    def __init__(self, *, message):
        super().__init__(message)


class OptionalMessageError(Exception):
    """Takes a message by name, too, and its class has none."""

    def __init__(self, *args, message=None):
        super().__init__(*args)
        self.message = message


class SecretiveType(type):
    """The type of classes whose ``message`` cannot be looked at."""

    @property
    def message(cls):
        raise RuntimeError("secret")


class SecretError(Exception, metaclass=SecretiveType):
    def __init__(self, *args, message=None):
        super().__init__(*args)
        self.received = message


class TwoArgumentsError(Exception):
    """Cannot be built from a text."""

    def __init__(self, text, code):
        super().__init__(text)
        self.code = code


class DeafError(Exception):
    """Says the same whatever it is told."""

    def __init__(self, _=None):
        super().__init__("always these words")


class MuteError(Exception):
    """Cannot be printed."""

    def __str__(self):
        raise RuntimeError("mute")


class EndingError(Exception):
    """Ends the program when it is printed."""

    def __str__(self):
        raise SystemExit("printed")


class PairError(Exception):
    """Can be printed with two arguments only."""

    def __str__(self):
        return f"{self.args[0]} at {self.args[1]}"


class ConstantError(Exception):
    """Prints the same whatever its arguments are."""

    def __str__(self):
        return "always these words"


class MuteKeyError(KeyError):
    """A KeyError that cannot be printed."""

    __str__ = __repr__ = MuteError.__str__


class ReadOnlyError(MuteError):
    """Its arguments cannot be replaced."""

    args = property(lambda self: ("of the class",))


class SealedError(MuteError):
    """Cannot be printed and takes no note."""

    __notes__ = ()


class PluralError(Exception):
    """Is no group, though it holds errors and takes them as a group does."""

    def __init__(self, text, exceptions):
        super().__init__(text)
        self.exceptions = exceptions


class WatchedError(Exception):
    """What it is chained to cannot be looked at."""

    @property
    def __context__(self):
        raise RuntimeError("secret")


class NotedInterrupt(KeyboardInterrupt):
    """Takes no note."""

    __notes__ = ()


class SingleError(Exception):
    """There is one instance only."""

    instance = None

    def __new__(cls, *args):
        cls.instance = cls.instance or super().__new__(cls, *args)
        return cls.instance


@dataclass(frozen=True)
class FrozenError(Exception):
    """No attribute of it can be set."""

    text: str


class OwnKeyError(KeyError):
    """A KeyError of a library."""


class ElsewhereError(Exception):
    """Gives something else than an instance where it is asked for a second one."""

    made = 0

    def __new__(cls, *args):
        cls.made += 1
        return super().__new__(cls, *args) if cls.made == 1 else ValueError(*args)


def failing(error):
    return capture(fail_with, error).pop()


def carried(error):
    """What the caller catches when a replica raises ``error``."""
    with pytest.raises(BaseException) as caught:
        reraise(failing(error), WHERE)
    return caught.value


def test_result_is_returned_unchanged():
    result = object()
    assert capture(lambda value: value, result) is result


def test_traceback_begins_in_the_called_function():
    trace = failing(ValueError("bad")).__traceback__
    assert trace.tb_frame.f_code is fail_with.__code__
    assert trace.tb_next is None


def test_exception_can_be_taken_once():
    failure = capture(fail_with, ValueError("bad"))
    assert isinstance(failure, CapturedError)
    failure.pop()
    with pytest.raises(AttributeError):
        failure.pop()


@pytest.mark.parametrize("kind", [ValueError, KeyError, OSError, StopIteration, OwnKeyError])
def test_reraised_error_has_the_type_replica_and_traceback(kind):
    caught = carried(kind("bad"))
    assert type(caught) is kind
    assert str(caught).startswith(REPORT.format(kind.__name__))
    assert str(caught).endswith(f"{kind.__name__}: {kind('bad')}\n")


@pytest.mark.parametrize("kind", [ClassMessageError, DeafError, torch.OutOfMemoryError])
def test_class_with_one_text_argument_is_kept(kind):
    caught = carried(kind("bad"))
    assert type(caught) is kind
    assert str(caught).startswith(REPORT.format(kind.__name__))


def test_value_error_has_the_usual_repr():
    caught = carried(ValueError("bad"))
    assert repr(caught) == f"ValueError({str(caught)!r})"
    assert "\\n" in repr(caught)


def test_class_with_a_message_keyword_is_kept():
    caught = carried(KeywordMessageError(message="bad"))
    assert type(caught) is KeywordMessageError
    assert str(caught).startswith(REPORT.format("KeywordMessageError"))


def test_exception_group_keeps_its_members():
    group = ExceptionGroup("several", [ValueError("bad"), KeyError("worse")])
    caught = carried(group)
    assert type(caught) is ExceptionGroup
    assert caught.exceptions == group.exceptions
    assert str(caught).startswith(REPORT.format("ExceptionGroup").splitlines()[0])


@pytest.mark.parametrize(
    "error",
    [
        TwoArgumentsError("bad", 7),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
        SealedError("bad"),
        PluralError("bad", [ValueError("worse")]),
        SingleError("bad"),
        ElsewhereError("bad"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_that_cannot_be_rebuilt_becomes_a_runtime_error(error):
    caught = carried(error)
    assert type(caught) is RuntimeError
    assert str(caught).startswith(REPORT.format(type(error).__name__))
    assert caught.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        MuteError("bad"),
        MuteError(),
        EndingError("bad"),
        PairError("bad", 7),
        ConstantError("bad"),
        MuteKeyError("bad"),
        ReadOnlyError("bad"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_class_that_does_not_print_its_text_is_kept_and_notes_the_text(error):
    caught = carried(error)
    assert type(caught) is type(error)
    (note,) = caught.__notes__
    assert note.startswith(REPORT.format(type(error).__name__))
    assert "in fail_with" in note
    assert caught.__cause__ is error


def test_the_note_says_that_the_message_is_not_to_be_had():
    (note,) = carried(MuteError("bad")).__notes__
    assert note.endswith("MuteError: <exception str() failed>\n")


def test_a_class_that_prints_its_text_has_no_note():
    assert not hasattr(carried(ValueError("bad")), "__notes__")


def test_the_text_of_a_class_without_message_is_its_argument():
    caught = carried(PairError("bad", 7))
    assert caught.args == tuple(caught.__notes__)


def test_frozen_exception_is_reraised():
    caught = carried(FrozenError("bad"))
    assert type(caught) is FrozenError
    assert caught.text.startswith(REPORT.format("FrozenError"))


def test_cause_is_the_original_with_its_attributes():
    error = OSError(2, "no such thing", "name")
    caught = carried(error)
    assert caught.__cause__ is error
    assert (caught.__cause__.errno, caught.__cause__.filename) == (2, "name")


def test_text_describes_the_cause_which_has_no_traceback():
    caught = carried(ValueError("bad"))
    assert "in fail_with" in str(caught)
    assert caught.__cause__.__traceback__ is None


def test_causes_are_part_of_the_text():
    def wrap():
        try:
            fail_with(KeyError("inner"))
        except KeyError as inner:
            raise ValueError("outer") from inner

    with pytest.raises(ValueError) as caught:
        reraise(capture(wrap).pop(), WHERE)
    assert re.search(
        "KeyError: 'inner'(.|\n)*direct cause(.|\n)*ValueError: outer", str(caught.value)
    )


def test_text_describes_the_context():
    def stumble():
        try:
            fail_with(KeyError("inner"))
        except KeyError:
            fail_with(ValueError("outer"))

    text = str(carried(capture(stumble).pop()))
    assert re.search("KeyError: 'inner'(.|\n)*another exception(.|\n)*ValueError: outer", text)


def test_unprintable_exception_can_have_a_cause():
    error = MuteError("bad")
    error.__cause__ = ValueError("worse")
    (note,) = carried(error).__notes__
    assert "ValueError: worse" in note


def test_capture_survives_an_exception_with_failing_attributes():
    # Not even pytest could report it if it came out.
    error, found = WatchedError("bad"), []
    with suppress(RuntimeError):
        found.append(failing(error))
    assert found == [error]


def test_interrupt_without_notes_is_raised_itself():
    error = NotedInterrupt("stop")
    assert carried(error) is error


@pytest.mark.parametrize("kind", [ValueError, ConstantError, MuteError])
def test_each_level_of_nested_calls_tells_the_cause_once(kind):
    def nested(depth):
        if depth == 0:
            raise kind("innermost")
        failure = capture(nested, depth - 1)
        reraise(failure.pop(), f"at depth {depth}")

    with pytest.raises(kind) as caught:
        nested(5)
    text = caught.value.args[0]
    assert text.count("in nested\n    raise kind(") == 1
    assert text.count(f"Caught {kind.__name__} at depth") == 5


def test_cycle_of_causes_terminates():
    error = ValueError("bad")
    error.__cause__ = KeyError("worse")
    error.__cause__.__cause__ = error
    assert "ValueError: bad" in str(carried(error))


def test_exception_with_failing_attributes_is_reraised():
    class ShyError(SyntaxError):
        @property
        def lineno(self):
            raise RuntimeError("do not look")

    assert str(carried(ShyError("bad"))).endswith("ShyError\n")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_base_exception_is_raised_itself_with_a_note(kind):
    error = kind("stop")
    caught = carried(error)
    assert caught is error
    assert caught.__cause__ is None
    assert caught.__notes__ == [f"Raised {WHERE}."]


def test_callers_exception_is_not_part_of_the_cause():
    error = failing(ValueError("bad"))
    try:
        raise KeyError("of the caller")
    except KeyError:
        with pytest.raises(ValueError) as caught:
            reraise(error, WHERE)
    assert caught.value.__cause__ is error
    assert error.__context__ is None


def test_class_without_a_message_receives_its_text_by_position():
    caught = carried(OptionalMessageError("bad"))
    assert (caught.args, caught.message) == ((str(caught),), None)


def test_failing_message_attribute_counts_as_missing():
    caught = carried(SecretError("bad"))
    assert (caught.args, caught.received) == ((str(caught),), None)
