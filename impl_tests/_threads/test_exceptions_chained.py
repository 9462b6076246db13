"""impl._threads.exceptions: chained exceptions and exception groups."""

import pytest

from impl._threads.exceptions import capture, format_error, reraise


class GroupWithoutMembers(ExceptionGroup):
    """A group whose attribute ``exceptions`` raises an error."""

    @property
    def exceptions(self):
        raise AttributeError("no members")


def fail_with(error):
    raise error


def test_a_group_whose_members_cannot_be_read_is_raised():
    member = ValueError("member")
    error = capture(fail_with, GroupWithoutMembers("group", [member])).pop()
    with pytest.raises(Exception, match="Caught GroupWithoutMembers") as caught:
        reraise(error, "in replica 0")
    assert caught.value.__cause__ is error
    assert member.__traceback__ is None


def test_a_text_with_the_mark_of_a_nested_error_needs_no_cause():
    text = format_error(ValueError("bad\nOriginal text"), "in replica 0")
    assert text.endswith("ValueError: bad\nOriginal text\n")


def test_errors_that_are_the_causes_of_each_other_are_formatted():
    first, second = ValueError("first\nOriginal text"), ValueError("second\nOriginal text")
    first.__cause__, second.__cause__ = second, first
    text = format_error(first, "in replica 0")
    assert text.count("ValueError: first") == 1
