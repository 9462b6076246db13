"""impl._threads.sequential: calls of one thread, one after the other."""

import threading
from functools import partial

import pytest

from impl._threads.exceptions import Failure
from impl._threads.locals import can_be_fresh
from impl._threads.sequential import run_sequentially
from impl_tests.samples import FunctionMode, fail_with


def test_an_interrupt_ends_the_sequence():
    calls = [int, int, partial(fail_with, KeyboardInterrupt()), partial(pytest.fail, "begun")]
    outcomes = run_sequentially(calls)
    assert outcomes[:-1] == [None, None]
    assert outcomes[-1].is_interrupt


def test_a_call_finds_no_thread_locals_of_the_call_before():
    local = threading.local()

    def call():
        seen = getattr(local, "value", None)
        local.value = "left"
        return seen

    assert run_sequentially([call] * 3) == [None] * 3
    assert not hasattr(local, "value")


def test_each_call_has_its_own_thread_while_a_mode_is_active():
    with FunctionMode():
        outcomes = run_sequentially([threading.get_ident] * 3)
    assert threading.get_ident() not in outcomes


def test_the_caller_makes_all_calls_where_its_locals_can_be_hidden():
    outcomes = run_sequentially([threading.get_ident] * 3)
    assert ({*outcomes} == {threading.get_ident()}) == can_be_fresh()


def test_an_error_does_not_end_the_sequence():
    outcomes = run_sequentially([partial(fail_with, ValueError()), lambda: 1])
    assert isinstance(outcomes[0], Failure)
    assert outcomes[1] == 1
