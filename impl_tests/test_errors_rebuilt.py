"""impl._errors: how the class of a replica's exception is called again."""

import pytest

from impl._errors import Failure, reraise


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
        self.given = message


def carried(error):
    with pytest.raises(type(error)) as caught:
        reraise(Failure(error).take(), "in replica 0")
    return caught.value


def test_a_class_without_a_message_is_given_its_text_by_position():
    caught = carried(OptionalMessageError("bad"))
    assert (caught.args, caught.message) == ((str(caught),), None)


def test_a_message_that_cannot_be_looked_at_is_none():
    caught = carried(SecretError("bad"))
    assert (caught.args, caught.given) == ((str(caught),), None)
