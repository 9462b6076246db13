"""impl._errors: captured exceptions; type, text, causes and lifetime of reraised ones."""

import sys
import weakref

import pytest

from impl._errors import CapturedError, capture, format_error, raise_rebuilt, reraise
from spec_tests.checks.leaks import disable_gc

LOCATION = "in replica 2 on device 3"
#: The beginning of the text of a reraised exception.
REPORT = "Caught {} in replica 2 on device 3.\nOriginal Traceback (most recent call last):\n"


class UnprintableError(Exception):
    """An exception whose ``__str__`` raises an error."""

    def __str__(self):
        raise RuntimeError("unprintable")


def fail_with(error):
    raise error


def captured(error):
    """Raise and capture ``error``; return the captured exception."""
    return capture(fail_with, error).pop()


@pytest.mark.parametrize("kind", [ValueError, UnprintableError])
def test_text_of_nested_calls_contains_the_innermost_frame_once(kind):
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


def test_error_of_another_process_is_raised_with_its_text():
    error = captured(KeyError("bad"))
    text = format_error(error, LOCATION)
    with pytest.raises(KeyError) as caught:
        raise_rebuilt(error, text)
    assert str(caught.value) == text
    assert text.startswith(REPORT.format("KeyError"))
    assert "in fail_with" in text
    assert text.endswith("KeyError: 'bad'\n")
    assert not hasattr(caught.value, "__notes__")
    assert caught.value.__cause__ is error
    assert error.__traceback__ is None


class PrefixingError(Exception):
    """An exception whose constructor puts a word before the text."""

    def __init__(self, text):
        super().__init__(f"prefix: {text}")


def test_message_of_a_constructor_that_keeps_the_text_is_not_replaced():
    with pytest.raises(PrefixingError, match=r"^prefix: Caught PrefixingError"):
        reraise(PrefixingError("first"), LOCATION)


def test_an_error_with_more_causes_than_the_recursion_limit_is_reported():
    error = ValueError("first cause")
    for _ in range(sys.getrecursionlimit()):
        outer = ValueError("outer")
        outer.__cause__ = error
        error = outer
    raised = capture(reraise, capture(fail_with, error).pop(), LOCATION).pop()
    assert type(raised) is ValueError
    assert "Caught ValueError in replica 2 on device 3." in str(raised)
    assert "first cause" in str(raised)


class BadError(Exception):
    """An exception class that supports weak references."""


class Value:
    """An object that weak references can refer to."""


def raise_beside_value(references, error):
    """Raise ``error`` in a frame with a local Value; append a weak reference to the Value."""
    value = Value()
    references.append(weakref.ref(value))
    fail_with(error)


def inner_error(references):
    """Return an exception whose traceback has a frame with a local Value."""
    try:
        raise_beside_value(references, KeyError("inner"))
    except KeyError as error:
        return error


def with_cause_only(references):
    raise ValueError("outer") from inner_error(references)


def with_member_only(references):
    raise ExceptionGroup("outer", [inner_error(references)])


def with_context_only(references):
    try:
        raise_beside_value(references, KeyError("inner"))
    except KeyError:
        raise_beside_value(references, ValueError("outer"))


CHAINS = pytest.mark.parametrize("raising", [with_cause_only, with_context_only, with_member_only])


@CHAINS
def test_causes_contexts_and_members_lose_their_tracebacks(raising):
    failure = capture(raising, [])
    with pytest.raises(Exception, match="outer") as caught:
        reraise(failure.pop(), LOCATION)
    error = caught.value.__cause__
    members = getattr(error, "exceptions", ())
    linked = {error.__cause__, error.__context__, *members} - {None}
    assert {type(exception) for exception in linked} == {KeyError}
    assert all(exception.__traceback__ is None for exception in linked)


@CHAINS
def test_capture_releases_the_variables_of_the_replicas_frames(raising):
    references = []
    with disable_gc():
        failure = capture(raising, references)
        assert references
        assert all(reference() is None for reference in references)
    assert isinstance(failure, CapturedError)


def test_reraised_exception_in_a_local_variable_is_freed_with_its_frame():
    def handle():
        held = BadError("bad")
        try:
            reraise(capture(fail_with, held).pop(), LOCATION)
        except BadError:
            return weakref.ref(held)

    with disable_gc():
        assert handle()() is None


def test_capture_does_not_close_a_suspended_generator_in_a_linked_traceback():
    def numbers():
        try:
            fail_with(KeyError("inside"))
        except KeyError as error:
            yield error
        yield "alive"

    generator = numbers()

    def chained():
        raise ValueError("outside") from next(generator)

    capture(chained)
    assert next(generator) == "alive"


def test_a_text_with_the_mark_of_a_nested_error_needs_no_cause():
    text = format_error(ValueError("bad\nOriginal text"), "in replica 0")
    assert text.endswith("ValueError: bad\nOriginal text\n")


def test_errors_that_are_the_causes_of_each_other_are_formatted():
    first, second = ValueError("first\nOriginal text"), ValueError("second\nOriginal text")
    first.__cause__, second.__cause__ = second, first
    text = format_error(first, "in replica 0")
    assert text.count("ValueError: first") == 1
