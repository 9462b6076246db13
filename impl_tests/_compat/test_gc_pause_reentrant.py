"""impl._compat.gc_pause: pauses in signal handlers, and interrupted pauses."""

import gc
import threading

import pytest

from impl._compat import gc_pause


@pytest.fixture
def pauses():
    """A new ``_Pauses`` object. The fixture restores the collector after the test."""
    was_enabled = gc.isenabled()
    yield gc_pause._Pauses()
    (gc.enable if was_enabled else gc.disable)()


@pytest.fixture
def pause():
    return gc_pause._Pause()


class Handler:
    """Wraps a function. The first call also begins and ends a pause, like a signal handler."""

    def __init__(self, pauses, function):
        self.pauses, self.function, self.is_handled = pauses, function, False

    def __call__(self):
        if not self.is_handled:
            self.is_handled = True
            pause = gc_pause._Pause()
            self.pauses.begin(pause)
            self.pauses.end(pause)
        return self.function()


def pause_in_thread(pauses, pause):
    """Begin and end a pause in another thread. Return whether the thread ends in time."""

    def run():
        pauses.begin(pause)
        pauses.end(pause)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10)
    return not thread.is_alive()


@pytest.mark.parametrize("name", ["isenabled", "disable", "enable"])
@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_signal_handler_may_pause_the_collector(pauses, pause, name, is_enabled, monkeypatch):
    (gc.enable if is_enabled else gc.disable)()
    handler = Handler(pauses, getattr(gc, name))
    monkeypatch.setattr(gc_pause.gc, name, handler)
    assert pause_in_thread(pauses, pause)
    monkeypatch.undo()
    assert handler.is_handled or name == "enable"
    assert gc.isenabled() == is_enabled


def test_the_end_of_a_pause_that_did_not_begin_changes_nothing(pauses, pause):
    gc.disable()
    pauses.end(pause)
    assert not gc.isenabled()


def test_the_end_of_a_pause_that_did_not_begin_changes_nothing_after_a_pause(pauses, pause):
    gc.enable()
    assert pause_in_thread(pauses, gc_pause._Pause())
    gc.disable()
    pauses.end(pause)
    assert not gc.isenabled()


def test_a_second_end_completes_an_interrupted_one(pauses, pause, monkeypatch):
    gc.enable()
    pauses.begin(pause)

    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(gc_pause.gc, "enable", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pauses.end(pause)
    monkeypatch.undo()
    pauses.end(pause)
    assert gc.isenabled()
