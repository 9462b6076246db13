"""impl._threads.sequential: calls of several functions, one after the other."""

import threading
from functools import partial

import pytest

from impl._threads.exceptions import CapturedError
from impl._threads.locals import can_isolate_locals
from impl._threads.sequential import run_sequentially
from impl_tests.samples import FunctionMode, fail_with


def test_no_function_is_called_after_an_interrupt():
    calls = [int, int, partial(fail_with, KeyboardInterrupt()), partial(pytest.fail, "begun")]
    outcomes = run_sequentially(calls)
    assert outcomes[:-1] == [None, None]
    assert outcomes[-1].is_interrupt


def test_call_sees_no_thread_local_values_of_the_previous_call():
    local = threading.local()

    def call():
        seen = getattr(local, "value", None)
        local.value = "left"
        return seen

    assert run_sequentially([call] * 3) == [None] * 3
    assert not hasattr(local, "value")


def test_each_call_runs_in_a_worker_while_a_mode_is_active():
    with FunctionMode():
        outcomes = run_sequentially([threading.get_ident] * 3)
    assert threading.get_ident() not in outcomes


def test_calling_thread_makes_all_calls_only_if_locals_can_be_isolated():
    outcomes = run_sequentially([threading.get_ident] * 3)
    assert ({*outcomes} == {threading.get_ident()}) == can_isolate_locals()


def test_next_function_is_called_after_an_error():
    outcomes = run_sequentially([partial(fail_with, ValueError()), lambda: 1])
    assert isinstance(outcomes[0], CapturedError)
    assert outcomes[1] == 1
