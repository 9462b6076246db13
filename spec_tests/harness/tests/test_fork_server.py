"""A command of the fork server behaves as in a new process."""

import os
import signal
import threading

import pytest

PROGRAM = """
import os, sys, torch
print(os.getcwd(), os.environ.get("OWN"), sys.argv, sys.path[0], len(os.environ))
print(os.getpid(), file=sys.stderr)
os.environ["LEFT"] = sys.modules["left"] = torch.left = "over"
"""


@pytest.fixture
def run(fork_server, tmp_path):
    """Return a function that runs a program's text as ``python -m program``."""

    def start(text, *arguments, **environment):
        (tmp_path / "program.py").write_text(text)
        return fork_server.run("program", *arguments, cwd=tmp_path, env=environment)

    return start


def test_command_has_its_own_folder_environment_arguments_and_path(run, tmp_path):
    done = run(PROGRAM, "a", OWN="1")
    arguments = [str(tmp_path / "program.py"), "a"]
    assert done.stdout == f"{tmp_path} 1 {arguments} {tmp_path} 1\n"


def test_a_command_leaves_no_state_to_the_next_one(run):
    checks = "'LEFT' in os.environ, 'left' in sys.modules, hasattr(torch, 'left')"
    first, second = run(PROGRAM), run(f"import os, sys, torch\nprint({checks}, os.getpid())")
    *printed, process = second.stdout.split()
    assert printed == ["False"] * 3
    assert len({process, first.stderr.strip(), str(os.getpid())}) == 3


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", 0),
        ("raise ValueError", 1),
        ("import os; os._exit(4)", 4),
        ("import os; os.kill(os.getpid(), 9)", -9),
    ],
)
def test_command_has_the_exit_status_of_a_new_process(run, text, status):
    assert run(text).returncode == status


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


def test_command_runs_its_atexit_functions(run):
    done = run("import atexit, sys\natexit.register(print, 'end')\nsys.exit('why')")
    assert (done.stdout, done.stderr) == ("end\n", "why\n")
