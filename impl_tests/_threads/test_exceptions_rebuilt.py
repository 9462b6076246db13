"""impl._threads.exceptions: exceptions that occurred in another process."""

import pytest

from impl._threads.exceptions import raise_rebuilt


def test_an_exception_is_raised_with_its_type_and_the_text():
    with pytest.raises(ValueError, match="text") as caught:
        raise_rebuilt(ValueError("reason"), "text")
    assert str(caught.value.__cause__) == "reason"
