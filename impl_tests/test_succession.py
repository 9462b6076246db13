"""impl._succession: calls in turn, and the one thread that looks after them."""

import os
import subprocess
import sys
import threading
import time
import weakref
from functools import partial
from pathlib import Path

import pytest

from impl import _succession, _thread_state
from impl._errors import Failure
from impl._thread_locals import can_be_fresh
from impl_tests.samples import CountingLock, FunctionMode, fail_with
from spec_tests.harness.concurrency.leaks import becomes, no_garbage_collection
from spec_tests.harness.conformance import clauses

ROOT = Path(__file__).resolve().parents[1]
#: Seconds after which something that should happen soon is taken to hang.
LONG = 20

FORK = """
import os, threading, time
from impl import _succession
_succession.PATIENCE, _succession._IDLE = 0.1, 100

def told():
    meeting = threading.Barrier(2, timeout=20)
    outcomes, stall = _succession.run_in_turn([meeting.wait, meeting.wait])
    return sorted(outcomes) == [0, 1] and stall.number == 0 and stall.was_idle

def fork():
    global child
    child = os.fork()

assert told()
_succession.run_in_turn([fork, int])
if child == 0:
    os._exit(0 if told() else 1)
print(os.waitpid(child, 0)[1], told())
"""


@pytest.fixture
def impatient(monkeypatch):
    """A short patience, in which every process counts as idle, and a watchman of one's own."""
    monkeypatch.setattr(_succession, "PATIENCE", 0.1)
    monkeypatch.setattr(_succession, "_IDLE", 100)
    monkeypatch.setattr(_succession, "_watchman", _succession._Watchman())


class Clock:
    """Goes on when a call says so, however busy the machine is."""

    def __init__(self):
        self.now = 0.0
        self.sleep, self.process_time = time.sleep, time.process_time

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(impatient, monkeypatch):
    """The succession's clock; its patience is 0.1 of what it shows."""
    clock = Clock()
    monkeypatch.setattr(_succession, "time", clock)
    return clock


class Turns:
    """The clocks of a process in which nothing goes on but for what a test says."""

    def __init__(self, on_sleep=None):
        self.now, self.used = 0.0, 64.0
        self.on_sleep = on_sleep

    def monotonic(self):
        return self.now

    def process_time(self):
        return self.used

    def sleep(self, seconds):
        self.now += seconds
        self.on_sleep(seconds)


def watchmen():
    return [each for each in threading.enumerate() if each.name == "parallel_apply in turn"]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_whichever_waits_is_told_and_all_end(clock, count):
    for waiting in range(count - 1):
        barrier = threading.Barrier(2, timeout=LONG)

        def wait(barrier=barrier):
            clock.now += 1
            return barrier.wait()

        calls = [int] * waiting + [wait] + [int] * (count - waiting - 2) + [wait]
        outcomes, stall = _succession.run_in_turn(calls)
        assert stall == (waiting, range(waiting + 1, count), True)
        assert sorted(outcomes) == [0] * (count - 1) + [1]


def test_calls_that_wait_for_each_other_in_pairs_are_told_once(impatient):
    barriers = [threading.Barrier(2, timeout=LONG) for _ in range(2)]
    calls = [barrier.wait for barrier in barriers for _ in range(2)]
    assert _succession.run_in_turn(calls)[1] == (0, range(1, 4), True)


def test_a_process_that_computes_is_told_apart(impatient, monkeypatch):
    monkeypatch.setattr(_succession, "_IDLE", 0)
    assert _succession.run_in_turn([partial(time.sleep, 0.3), int])[1] == (0, range(1, 2), False)


def test_the_patience_is_what_the_clauses_say():
    for name, word in (("waiting", "after"), ("slow", "more than")):
        says = clauses.load()[f"divergences.PA-9.{name}"].says
        assert f"{word} {_succession.PATIENCE:g} seconds" in says


@pytest.mark.parametrize(
    ("share", "is_idle"), [(0, True), (0.04, True), (0.05, False), (1, False)]
)
def test_a_process_is_idle_that_computes_next_to_nothing(monkeypatch, share, is_idle):
    turns = Turns()
    monkeypatch.setattr(_succession, "time", turns)
    succession = _succession._Succession([int, int])
    succession.begin_next()
    turns.now = _succession.PATIENCE
    turns.used += share * _succession.PATIENCE
    succession.begin_later_ones()
    assert succession.stall == (0, range(1, 2), is_idle)
    assert succession.elsewhere[1].wait() == 0


def test_who_waits_for_nobody_is_not_told(monkeypatch):
    turns = Turns()
    monkeypatch.setattr(_succession, "time", turns)
    succession = _succession._Succession([int])
    succession.begin_next()
    turns.now = 2 * _succession.PATIENCE
    succession.begin_later_ones()
    assert succession.stall is None


def test_the_watchman_looks_when_a_calls_time_is_up(monkeypatch):
    pauses = []

    def on_sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 1:
            turns.now = 0.6 * _succession.PATIENCE
            succession.begin_next()
            turns.now = _succession.PATIENCE
        if len(pauses) == 3:
            watchman._watched.clear()

    turns = Turns(on_sleep)
    monkeypatch.setattr(_succession, "time", turns)
    succession = _succession._Succession([int, int, int])
    watchman = _succession._Watchman()
    watchman._watched[id(succession)] = succession
    watchman._look()
    assert pauses == pytest.approx([_succession.PATIENCE * part for part in (1, 0.6, 1)])
    assert sorted(succession.elsewhere) == [1, 2]
    assert not watchman._is_awake


def test_what_has_ended_is_not_kept_until_the_next_look(monkeypatch):
    kept, alive = [_succession._Succession([int])], []
    gone = weakref.ref(kept[0])

    def on_sleep(seconds):
        alive.append(gone() is not None)
        if len(alive) == 2:
            kept.clear()
            watchman._watched.clear()
            alive.append(gone() is not None)

    monkeypatch.setattr(_succession, "time", Turns(on_sleep))
    kept[0].begin_next()
    watchman = _succession._Watchman()
    watchman._watched[0] = kept[0]
    with no_garbage_collection():
        watchman._look()
    assert alive == [True, True, False]


@pytest.fixture
def resting():
    """A watchman who counts as awake, so that none is woken, and never looks."""
    watchman = _succession._Watchman()
    watchman._is_awake = True
    return watchman


def test_what_is_no_longer_looked_after_begins_nothing(monkeypatch, resting):
    turns = Turns()
    monkeypatch.setattr(_succession, "time", turns)
    succession = _succession._Succession([int, int])
    with resting.over(succession):
        succession.begin_next()
    turns.now = 2 * _succession.PATIENCE
    succession.begin_later_ones()  # As where the watchman had just begun to look at it.
    assert not succession.elsewhere


def test_the_first_that_had_not_ended_in_time_is_told(monkeypatch):
    def refuse(call):
        raise RuntimeError("can't start new thread")

    turns = Turns()
    monkeypatch.setattr(_succession, "time", turns)
    monkeypatch.setattr(_succession, "start", refuse)
    succession = _succession._Succession([int, int, int])
    for _ in range(2):
        succession.begin_next()
        turns.now += _succession.PATIENCE
        with pytest.raises(RuntimeError, match="new thread"):
            succession.begin_later_ones()
    assert succession.stall == (0, range(1, 3), True)


def test_each_step_is_one_that_other_threads_wait_for(monkeypatch):
    turns, counts = Turns(), []
    monkeypatch.setattr(_succession, "time", turns)
    succession = _succession._Succession([int, int])
    succession._lock = CountingLock()
    for step in (succession.begin_next, succession.begin_later_ones, succession.end):
        step()
        turns.now += _succession.PATIENCE
        counts.append(succession._lock.count)
    assert counts == [1, 2, 3]


def test_what_is_looked_after_is_known_to_one_thread_at_a_time(resting):
    resting._lock, counts = CountingLock(), []
    with resting.over(_succession._Succession([])):
        counts.append(resting._lock.count)
        resting._present()
        counts.append(resting._lock.count)
    assert [*counts, resting._lock.count] == [1, 2, 3]


@pytest.mark.parametrize("run", [_succession.run_in_turn, _succession.run_one_by_one])
def test_an_interrupt_is_the_last_outcome(run):
    calls = [int, int, partial(fail_with, KeyboardInterrupt()), partial(pytest.fail, "begun")]
    outcomes = run(calls)
    if run is _succession.run_in_turn:
        outcomes, stall = outcomes
        assert stall is None
    assert outcomes[:-1] == [None, None]
    assert outcomes[-1].is_interrupt


@pytest.mark.parametrize("run", [_succession.run_in_turn, _succession.run_one_by_one])
def test_no_call_sees_what_one_before_has_left_in_thread_locals(run):
    local = threading.local()

    def call():
        seen = getattr(local, "value", None)
        local.value = "left"
        return seen

    assert run([call] * 3) in ([None] * 3, ([None] * 3, None))
    assert not hasattr(local, "value")


def test_a_forked_child_waits_for_no_thread_that_it_has_not(monkeypatch):
    old = _succession._Watchman()
    monkeypatch.setattr(_succession, "_watchman", old)
    old._lock.acquire()
    _succession._start_anew()
    assert not old._lock.locked()
    assert _succession._watchman is not old


@pytest.fixture
def unminded():
    """As before the first watchman, and again after the test."""
    _succession._mind_forks.cache_clear()
    yield
    _succession._mind_forks.cache_clear()


@pytest.mark.usefixtures("unminded")
@pytest.mark.parametrize("there_are_forks", [True, False])
def test_forks_are_minded_once(monkeypatch, there_are_forks):
    asked = []
    if there_are_forks:
        monkeypatch.setattr(os, "register_at_fork", lambda **hooks: asked.append(hooks))
    else:
        monkeypatch.delattr(os, "register_at_fork")
    for _ in range(2):
        monkeypatch.setattr(_succession, "_watchman", _succession._Watchman())
        _succession.run_in_turn([int, int])
    assert asked == [{"after_in_child": _succession._start_anew}] * there_are_forks


def test_calls_that_together_take_long_are_left_in_peace(clock):
    def pause():
        clock.now += 0.09
        time.sleep(0.03)

    assert _succession.run_in_turn([pause] * 10) == ([None] * 10, None)


def test_successions_may_stand_in_each_other(impatient):
    def inner():
        barrier = threading.Barrier(2, timeout=LONG)
        return _succession.run_in_turn([barrier.wait, barrier.wait])[1].number

    outcomes, stall = _succession.run_in_turn([inner, int])
    assert outcomes == [0, 0]
    assert stall is None or stall.number == 0  # It may be looked at first, and has waited, too.


def test_many_threads_have_one_watchman(impatient):
    seen, found = [], []

    def caller():
        barrier = threading.Barrier(2, timeout=LONG)
        calls = [barrier.wait, lambda: barrier.wait() * 0 + seen.append(len(watchmen())) or 1]
        found.append(_succession.run_in_turn(calls)[1])

    before = len(watchmen())
    callers = [threading.Thread(target=caller) for _ in range(8)]
    for each in callers:
        each.start()
    for each in callers:
        each.join(LONG)
    assert found == [(0, range(1, 2), True)] * 8
    assert max(seen) <= before + 1


def test_the_watchman_goes_when_there_is_nothing_to_look_after(impatient):
    for _ in range(2):
        _succession.run_in_turn([int, int])
        assert _succession._watchman._is_awake
        assert {each.daemon for each in watchmen()} == {True}  # They keep no program from its end.
        assert becomes(lambda: not _succession._watchman._is_awake)


def test_the_watchman_keeps_nothing(impatient):
    class Outcome:
        """Can be referred to weakly."""

    with no_garbage_collection():
        outcomes, _ = _succession.run_in_turn([partial(time.sleep, 0.15), Outcome, Outcome])
        gone = weakref.ref(outcomes[2])
        del outcomes
        assert becomes(lambda: gone() is None)


def test_without_more_threads_the_caller_goes_on_alone(impatient, monkeypatch):
    # As where what a thread holds can be hidden; elsewhere calls in turn need a thread, too.
    monkeypatch.setattr(_thread_state, "can_be_fresh", lambda: True)
    # Nor where coverage is measured, which traces each thread in its own way.
    monkeypatch.setattr(_thread_state, "_has_private_hooks", lambda: False)
    asked = []

    def refuse(call):
        asked.append(call)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_succession, "start", refuse)
    outcomes, stall = _succession.run_in_turn([partial(time.sleep, 0.5), lambda: 1, lambda: 2])
    assert outcomes == [None, 1, 2]
    assert stall == (0, range(1, 3), True)
    assert 1 < len(asked) < 10  # It asks again, but not all the time.


def test_an_interrupt_leaves_nothing_to_begin(clock):
    begun, barrier = [], threading.Barrier(2)

    def interrupted():
        barrier.abort()
        raise KeyboardInterrupt

    outcomes, stall = _succession.run_in_turn([int, interrupted, lambda: begun.append(1)])
    assert [type(each) for each in outcomes] == [type(None), Failure]
    assert stall is None
    clock.now += 1
    time.sleep(0.3)
    assert not begun


def test_a_succession_that_has_ended_begins_nothing(impatient):
    begun = []
    succession = _succession._Succession([int, lambda: begun.append(1)])
    succession.begin_next()
    succession.end()
    time.sleep(0.15)
    succession.begin_later_ones()
    assert not succession.elsewhere
    assert not begun


def test_each_call_has_a_thread_of_its_own_while_a_mode_is_active():
    with FunctionMode():
        outcomes, _ = _succession.run_in_turn([threading.get_ident] * 3)
    assert threading.get_ident() not in outcomes


def test_the_caller_makes_all_calls_where_its_locals_can_be_hidden():
    outcomes, _ = _succession.run_in_turn([threading.get_ident] * 3)
    assert ({*outcomes} == {threading.get_ident()}) == can_be_fresh()


def test_errors_do_not_stop_the_next_ones():
    outcomes, _ = _succession.run_in_turn([partial(fail_with, ValueError()), lambda: 1])
    assert isinstance(outcomes[0], Failure)
    assert outcomes[1] == 1


def test_turns_are_taken_in_a_forked_child_too():
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("0 True\n", "")
