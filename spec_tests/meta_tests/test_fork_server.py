"""A command that is forked ends as one in a process of its own."""

import os

import pytest
from hypothesis import settings

PROGRAM = """
import os, sys, torch
print(os.getcwd(), os.environ.get("OWN"), sys.argv, sys.path[0], len(os.environ))
print(os.getpid(), file=sys.stderr)
os.environ["LEFT"] = sys.modules["left"] = torch.left = "over"
"""


@pytest.fixture
def run(fork_server, tmp_path):
    """Run a program as ``python -m program``, in a folder of its own."""

    def start(text, *arguments, **environment):
        (tmp_path / "program.py").write_text(text)
        return fork_server.run("program", *arguments, cwd=tmp_path, env=environment)

    return start


def test_folder_environment_arguments_and_path_are_its_own(run, tmp_path):
    done = run(PROGRAM, "a", OWN="1")
    arguments = [str(tmp_path / "program.py"), "a"]
    assert done.stdout == f"{tmp_path} 1 {arguments} {tmp_path} 1\n"


def test_nothing_is_left_for_the_next(run):
    left = "'LEFT' in os.environ, 'left' in sys.modules, hasattr(torch, 'left')"
    first, second = run(PROGRAM), run(f"import os, sys, torch\nprint({left}, os.getpid())")
    *found, process = second.stdout.split()
    assert found == ["False"] * 3
    assert len({process, first.stderr.strip(), str(os.getpid())}) == 3


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("raise ValueError", 1),
        ("import os; os._exit(4)", 4),
        ("import os; os.kill(os.getpid(), 9)", -9),
    ],
)
def test_it_ends_as_any_process_does(run, text, status):
    assert run(text).returncode == status


def test_what_runs_at_its_end_runs(run):
    done = run("import atexit, sys\natexit.register(print, 'end')\nsys.exit('why')")
    assert (done.stdout, done.stderr) == ("end\n", "why\n")


def test_torch_is_imported_and_nothing_of_the_suite(run):
    text = "import sys; print('torch' in sys.modules, 'spec_tests' in sys.modules)"
    assert run(text).stdout == "True False\n"


def test_examples_are_kept_in_its_folder(run, tmp_path):
    kept = str(tmp_path) if settings().database else "None"  # none are kept under CI
    assert kept in run("from hypothesis import settings; print(settings().database)").stdout
