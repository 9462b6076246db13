"""impl._threads.exceptions: exceptions that occurred in another process."""

import pytest

from impl._threads.exceptions import raise_rebuilt


def test_an_exception_that_was_lost_becomes_a_runtime_error():
    with pytest.raises(RuntimeError, match=r"^text$"):
        raise_rebuilt(None, "text")


def test_an_exception_is_raised_with_its_type_and_the_text():
    with pytest.raises(ValueError, match="text") as caught:
        raise_rebuilt(ValueError("reason"), "text")
    assert str(caught.value.__cause__) == "reason"
