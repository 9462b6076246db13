"""impl._threads.exceptions: an exception on its way to another process."""

import pytest

from impl._threads.exceptions import capture, format_error, raise_rebuilt
from impl_tests.samples import fail_with

WHERE = "on rank 2"


class MuteError(Exception):
    """Cannot be printed."""

    def __str__(self):
        raise RuntimeError("mute")


def sent(error):
    """An exception that was raised, and the text that tells of it."""
    raised = capture(fail_with, error).pop()
    return raised, format_error(raised, WHERE)


def test_text_has_the_error_its_place_and_traceback():
    _, text = sent(ValueError("bad"))
    assert text.startswith(f"Caught ValueError {WHERE}.\nOriginal Traceback")
    assert "in fail_with" in text
    assert text.endswith("ValueError: bad\n")


def test_sent_error_is_raised_with_the_text():
    error, text = sent(KeyError("bad"))
    with pytest.raises(KeyError) as caught:
        raise_rebuilt(error, text)
    assert str(caught.value) == text
    assert caught.value.__cause__ is error
    assert error.__traceback__ is None


def test_a_class_that_cannot_be_printed_is_kept_and_notes_the_text():
    error, text = sent(MuteError("bad"))
    with pytest.raises(MuteError) as caught:
        raise_rebuilt(error, text)
    assert caught.value.__notes__ == [text]
    assert text.startswith(f"Caught MuteError {WHERE}.")


def test_unsent_error_is_a_runtime_error_with_the_text():
    with pytest.raises(RuntimeError) as caught:
        raise_rebuilt(None, "what was raised")
    assert type(caught.value) is RuntimeError
    assert str(caught.value) == "what was raised"
    assert caught.value.__cause__ is None
