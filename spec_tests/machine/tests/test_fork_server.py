"""A command of the fork server behaves as in a new process."""

import os
import signal
import threading

import pytest

PROGRAM = """
import os, sys, torch
print(os.getpid(), file=sys.stderr)
os.environ["LEFT"] = sys.modules["left"] = torch.left = "over"
"""


@pytest.fixture
def run(fork_server, tmp_path):
    """Return a function that runs a program's text as ``python -m program``."""

    def start(text):
        (tmp_path / "program.py").write_text(text)
        return fork_server.run("program", cwd=tmp_path, env={})

    return start


def test_a_command_leaves_no_state_to_the_next_one(run):
    checks = "'LEFT' in os.environ, 'left' in sys.modules, hasattr(torch, 'left')"
    first, second = run(PROGRAM), run(f"import os, sys, torch\nprint({checks}, os.getpid())")
    *printed, process = second.stdout.split()
    assert printed == ["False"] * 3
    assert len({process, first.stderr.strip(), str(os.getpid())}) == 3


def test_an_interrupted_command_does_not_answer_the_next_one(run):
    def interrupt(*_):
        raise TimeoutError

    assert run("").returncode == 0  # The server has started.
    handler = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(1, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(TimeoutError):
            run("import time; time.sleep(99)")
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR1, handler)
    assert run("raise SystemExit(3)").returncode == 3
