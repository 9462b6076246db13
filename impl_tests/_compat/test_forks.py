"""impl._compat.forks: handlers that run in forked children."""

import os

import pytest

from impl._compat.forks import register_fork_handler

CHILD_STATUS = 7


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_handler_runs_in_the_child_only():
    parent, seen = os.getpid(), []

    def end_child():
        seen.append(os.getpid())
        if os.getpid() != parent and armed:
            os._exit(CHILD_STATUS)

    armed = True
    register_fork_handler(end_child)
    child = os.fork()
    if child == 0:
        os._exit(0)
    armed = False
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == CHILD_STATUS
    assert seen == []


def test_system_without_forks_needs_no_handler(monkeypatch):
    monkeypatch.delattr(os, "register_at_fork", raising=False)
    register_fork_handler(lambda: None)
