"""impl._compat.forks: handlers that run in forked child processes."""

import os

import pytest

from impl._compat.forks import register_fork_handler

#: The exit status of the child process, set by the handler.
CHILD_STATUS = 7


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_handler_runs_only_in_the_child_process():
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


def test_register_fork_handler_does_nothing_on_a_system_without_forks(monkeypatch):
    monkeypatch.delattr(os, "register_at_fork", raising=False)
    register_fork_handler(lambda: None)
