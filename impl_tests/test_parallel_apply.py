"""impl.parallel_apply: which thread runs what."""

import importlib
import threading
from types import SimpleNamespace

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from impl._threads import pool as thread_pool
from impl._threads import state as thread_state
from impl._threads.sequential import Stall

#: The module, not the function that the package names alike.
parallel_apply = importlib.import_module("impl.parallel_apply")
#: A worker that never wakes up.
ASLEEP = SimpleNamespace(rest=lambda: None)


@pytest.fixture
def hidable(monkeypatch):
    """An interpreter that hides what a thread holds; since CPython 3.13 that is taken to be so.

    Nor does it trace threads each in its own way, as it does when coverage is measured.
    """
    monkeypatch.setattr(thread_state, "can_be_fresh", lambda: True)
    monkeypatch.setattr(thread_state, "_has_private_hooks", lambda: False)


def same(tensor):
    return tensor


@pytest.mark.usefixtures("hidable")
def test_the_caller_runs_what_no_thread_has_begun(monkeypatch):
    monkeypatch.setattr(
        parallel_apply, "start", lambda function: thread_pool.Pending(function, ASLEEP)
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


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("compiled", [False, True], ids="compiled={}".format)
def test_a_single_call_has_no_other_to_wait_for(in_turn, compiled, monkeypatch):
    monkeypatch.setattr(parallel_apply, "has_compiled_code", lambda module: compiled)
    with saved_tensors_hooks(same, same):
        found = parallel_apply._run([threading.get_ident], [None], in_turn=in_turn)
    assert found == ([threading.get_ident()], None)


STALLS = [
    (range(2, 3), "replica 2"),
    (range(2, 4), "replicas 2 to 3"),
    (range(2, 5), "replicas 2 to 4"),
]


@pytest.mark.parametrize(("later", "others"), STALLS, ids=str)
def test_a_replica_that_waited_is_told(later, others):
    with pytest.raises(RuntimeError) as caught:
        parallel_apply._report(Stall(1, later, was_idle=True), torch.device("sim:3"))
    assert str(caught.value) == (
        f"Replica 1 on device 3 had not ended after 5 s, and {others} had not begun: it seems to "
        "wait for them. Leave out in_turn=True"
    )


@pytest.mark.parametrize(("later", "others"), STALLS, ids=str)
def test_the_caller_is_warned_of_a_replica_that_took_long(later, others):
    def call():
        parallel_apply._report(Stall(1, later, was_idle=False), torch.device("cpu"))

    code = compile("call()", "the caller", "exec")
    with pytest.warns(RuntimeWarning) as caught:
        exec(code, {"call": call})
    assert str(caught[0].message) == (
        f"Replica 1 on device cpu had not ended after 5 s, and {others} had not begun, so these "
        "were begun in threads, as without in_turn=True"
    )
    assert caught[0].filename == "the caller"


def test_what_was_noticed_on_the_way_is_told(monkeypatch):
    stall = Stall(0, range(1, 2), was_idle=True)
    monkeypatch.setattr(parallel_apply, "_run", lambda *_, **__: ([1, 2], stall))
    with pytest.raises(RuntimeError, match="Replica 0 on device cpu had not ended"):
        parallel_apply.parallel_apply([int, int], [(), ()], devices=["cpu", "cpu"], in_turn=True)
