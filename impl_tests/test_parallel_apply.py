"""impl.parallel_apply: which thread runs what."""

import importlib
import threading
from types import SimpleNamespace

import pytest
from torch.autograd.graph import saved_tensors_hooks

from impl import _thread_state, _workers

#: The module, not the function that the package names alike.
parallel_apply = importlib.import_module("impl.parallel_apply")
#: A worker that never wakes up.
ASLEEP = SimpleNamespace(rest=lambda: None)


@pytest.fixture
def hidable(monkeypatch):
    """An interpreter that hides what a thread holds; since CPython 3.13 that is taken to be so."""
    monkeypatch.setattr(_thread_state, "can_be_fresh", lambda: True)


def same(tensor):
    return tensor


@pytest.mark.usefixtures("hidable")
def test_the_caller_runs_what_no_thread_has_begun(monkeypatch):
    monkeypatch.setattr(
        parallel_apply, "start", lambda function: _workers.Pending(function, ASLEEP)
    )
    found = parallel_apply._outcomes([threading.get_ident] * 3)
    assert found == [threading.get_ident()] * 3


def test_no_module_runs_in_the_caller_while_hooks_stay_behind():
    with saved_tensors_hooks(same, same):
        found = parallel_apply._outcomes([threading.get_ident] * 3)
    assert threading.get_ident() not in found


def test_a_single_call_runs_in_the_caller_in_any_case():
    with saved_tensors_hooks(same, same):
        assert parallel_apply._outcomes([threading.get_ident]) == [threading.get_ident()]


@pytest.mark.usefixtures("hidable")
def test_the_first_module_runs_in_the_caller():
    barrier = threading.Barrier(2, timeout=20)

    def meet():
        barrier.wait()
        return threading.get_ident()

    first, second = parallel_apply._outcomes([meet, meet])
    assert first == threading.get_ident() != second
