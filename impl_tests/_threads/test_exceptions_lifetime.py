"""impl._threads.exceptions: what an exception keeps alive on its way, and how long it lives."""

import weakref

import pytest

from impl._threads.exceptions import CapturedError, capture, reraise
from impl_tests.samples import fail_with
from spec_tests.harness.concurrency.leaks import disable_gc

WHERE = "in replica 2 on device 3"


class BadError(Exception):
    """An exception that can be watched."""


class StopError(BaseException):
    """No Exception."""


class Witness:
    """Something whose end can be watched."""


def hold(witnesses, error):
    witness = Witness()
    witnesses.append(weakref.ref(witness))
    fail_with(error)


def chain(witnesses):
    try:
        hold(witnesses, KeyError("inner"))
    except KeyError as inner:
        hold(witnesses, ExceptionGroup("outer", [inner, ValueError("member")]))


def cause_alone(witnesses):
    """Raise with a cause that was handled before, and so is no context."""
    kept = []
    try:
        hold(witnesses, KeyError("inner"))
    except KeyError as inner:
        kept.append(inner)
    raise ValueError("outer") from kept.pop()


def context_alone(witnesses):
    try:
        hold(witnesses, KeyError("inner"))
    except KeyError:
        hold(witnesses, ValueError("outer"))


def member_alone(witnesses):
    """Raise a group with a member that was handled before."""
    kept = []
    try:
        hold(witnesses, KeyError("inner"))
    except KeyError as inner:
        kept.append(inner)
    raise ExceptionGroup("outer", [kept.pop()])


@pytest.mark.parametrize("raising", [cause_alone, context_alone, member_alone])
def test_whatever_an_exception_leads_to_loses_its_traceback(raising):
    failure = capture(raising, [])
    with pytest.raises(Exception, match="outer") as caught:
        reraise(failure.pop(), WHERE)
    error = caught.value.__cause__
    members = getattr(error, "exceptions", ())
    linked = {error.__cause__, error.__context__, *members} - {None}
    assert {type(each) for each in linked} == {KeyError}
    assert all(each.__traceback__ is None for each in linked)


RAISING = [
    lambda found: hold(found, ValueError("bad")),
    chain,
    cause_alone,
    context_alone,
    member_alone,
]


@pytest.mark.parametrize("raising", RAISING)
def test_no_frame_of_the_replica_keeps_its_variables(raising):
    witnesses = []
    with disable_gc():
        failure = capture(raising, witnesses)
        assert witnesses
        assert all(witness() is None for witness in witnesses)
    assert isinstance(failure, CapturedError)


def test_failure_keeps_no_argument_alive():
    with disable_gc():
        argument = Witness()
        witness = weakref.ref(argument)
        failure = capture(lambda _: fail_with(ValueError("bad")), argument)
        del argument
        assert witness() is None
    assert isinstance(failure, CapturedError)


@pytest.mark.parametrize("kind", [BadError, StopError])
def test_handled_exception_is_freed_without_garbage_collection(kind):
    def handle():
        try:
            reraise(capture(lambda: fail_with(kind("bad"))).pop(), WHERE)
        except kind as error:
            return weakref.ref(error)

    with disable_gc():
        assert handle()() is None


def test_referenced_exception_is_freed_with_its_owner():
    def handle():
        held = BadError("bad")
        try:
            reraise(capture(fail_with, held).pop(), WHERE)
        except BadError:
            return weakref.ref(held)

    with disable_gc():
        assert handle()() is None


def test_suspended_generator_is_not_closed():
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
