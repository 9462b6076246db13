"""impl._threads.exceptions: exceptions that one process raises and another process reraises."""

import pytest

from impl._threads.exceptions import capture, format_error, raise_rebuilt
from impl_tests.samples import fail_with

LOCATION = "on rank 2"


class UnprintableError(Exception):
    """An exception whose ``__str__`` raises an error."""

    def __str__(self):
        raise RuntimeError("unprintable")


def raised_with_text(error):
    """Return ``error``, raised once, and its formatted text."""
    raised = capture(fail_with, error).pop()
    return raised, format_error(raised, LOCATION)


def test_text_contains_error_location_and_traceback():
    _, text = raised_with_text(ValueError("bad"))
    assert text.startswith(f"Caught ValueError {LOCATION}.\nOriginal Traceback")
    assert "in fail_with" in text
    assert text.endswith("ValueError: bad\n")


def test_raise_rebuilt_raises_the_same_type_with_the_text():
    error, text = raised_with_text(KeyError("bad"))
    with pytest.raises(KeyError) as caught:
        raise_rebuilt(error, text)
    assert str(caught.value) == text
    assert not hasattr(caught.value, "__notes__")
    assert caught.value.__cause__ is error
    assert error.__traceback__ is None


def test_unprintable_error_keeps_its_type_and_gets_a_note():
    error, text = raised_with_text(UnprintableError("bad"))
    with pytest.raises(UnprintableError) as caught:
        raise_rebuilt(error, text)
    assert caught.value.__notes__ == [text]
    assert text.startswith(f"Caught UnprintableError {LOCATION}.")


def test_without_the_original_error_a_runtime_error_with_the_text_is_raised():
    with pytest.raises(RuntimeError) as caught:
        raise_rebuilt(None, "the text")
    assert type(caught.value) is RuntimeError
    assert str(caught.value) == "the text"
    assert caught.value.__cause__ is None
