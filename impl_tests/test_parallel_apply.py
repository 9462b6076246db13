"""impl.parallel_apply: which thread runs what."""

import importlib
import threading
from types import SimpleNamespace

import pytest
from torch.autograd.graph import saved_tensors_hooks

from impl._threads import pool as thread_pool
from impl._threads import state as thread_state

#: The module, not the function that the package names alike.
parallel_apply = importlib.import_module("impl.parallel_apply")
#: A worker that never wakes up.
ASLEEP = SimpleNamespace(become_idle=lambda: None)


@pytest.fixture
def hidable(monkeypatch):
    """An interpreter that hides what a thread holds; since CPython 3.13 that is taken to be so.

    Nor does it trace threads each in its own way, as it does when coverage is measured.
    """
    monkeypatch.setattr(thread_state, "can_isolate_locals", lambda: True)
    monkeypatch.setattr(thread_state, "_has_private_hooks", lambda: False)


def same(tensor):
    return tensor


@pytest.mark.usefixtures("hidable")
def test_the_caller_runs_what_no_thread_has_begun(monkeypatch):
    monkeypatch.setattr(
        parallel_apply, "start", lambda function: thread_pool.Future(function, ASLEEP)
    )
    found = parallel_apply._outcomes([threading.get_ident] * 3)
    assert found == [threading.get_ident()] * 3


def test_no_module_runs_in_the_caller_while_hooks_stay_behind():
    with saved_tensors_hooks(same, same):
        found = parallel_apply._outcomes([threading.get_ident] * 3)
    assert threading.get_ident() not in found


@pytest.mark.usefixtures("hidable")
def test_the_first_module_runs_in_the_caller():
    barrier = threading.Barrier(2, timeout=20)

    def meet():
        barrier.wait()
        return threading.get_ident()

    first, second = parallel_apply._outcomes([meet, meet])
    assert first == threading.get_ident() != second


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("compiled", [False, True], ids="compiled={}".format)
def test_a_single_call_runs_in_the_calling_thread(in_turn, compiled, monkeypatch):
    monkeypatch.setattr(parallel_apply, "has_compiled_code", lambda module: compiled)
    with saved_tensors_hooks(same, same):
        found = parallel_apply._run([threading.get_ident], [None], in_turn=in_turn)
    assert found == [threading.get_ident()]
