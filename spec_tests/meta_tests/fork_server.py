"""Commands ``python -m MODULE ...`` forked from a process that has imported torch already.

Each has a process of its own, with its own folder, environment and output, and ends as any other
does; only the import of torch, half the time of a small run, is done once for all. The process
that they are forked from touches no device.
"""

import gc
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

#: What is imported once. PyTorch imports symbolic shapes at the first call of torch.autograd.grad.
_IMPORTED = ("torch", "torch.fx.experimental.symbolic_shapes", "numpy", "hypothesis")


class ForkServer:
    """Starts the commands; the first one waits for torch."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None

    def run(
        self, *command: str, cwd: Path, env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run ``python -m *command`` there and wait until it ends."""
        with tempfile.TemporaryDirectory() as folder:
            outputs = [Path(folder) / name for name in ("stdout", "stderr")]
            order = {
                "command": command,
                "cwd": str(cwd),
                "env": dict(env),
                "outputs": [str(path) for path in outputs],
            }
            status = self._status(order)
            texts = [path.read_text(encoding="utf-8", errors="replace") for path in outputs]
        return subprocess.CompletedProcess(command, status, *texts)

    def run_pytest(self, *arguments: str, cwd: Path, env: Mapping[str, str]) -> pytest.RunResult:
        """Run ``python -m pytest *arguments`` there; give what pytester's own runs give."""
        done = self.run("pytest", *arguments, cwd=cwd, env=env)
        lines = done.stdout.splitlines(), done.stderr.splitlines()
        return pytest.RunResult(done.returncode, *lines, duration=0)

    def close(self) -> None:
        """End the process that commands are forked from."""
        if self._server is not None:
            self._server.communicate()
            self._server = None

    def _status(self, order: Mapping[str, Any]) -> int:
        if self._server is None:
            # With -P, as without PYTHONPATH, the path of modules is Python's own.
            command = [sys.executable, "-P", __file__]
            env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            self._server = subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=env)
        server = self._server
        assert server.stdin is not None
        assert server.stdout is not None
        print(json.dumps(order), file=server.stdin, flush=True)
        return int(server.stdout.readline())


def _next_order() -> Any:
    """Fork a process for every order; return in those alone."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            return json.loads(line)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    sys.exit()


def _become(order: Mapping[str, Any]) -> None:
    """Make this process what a new one would be."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(order["outputs"], 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [order["cwd"], *filter(None, given)]
    sys.argv = list(order["command"])
    _keep_examples_here()


def _keep_examples_here() -> None:
    """Let Hypothesis keep its examples in this folder, not in the one it was imported in."""
    from hypothesis import settings
    from hypothesis.database import DirectoryBasedExampleDatabase

    usual = settings()
    if usual.database is not None:
        here = DirectoryBasedExampleDatabase(Path.cwd() / ".hypothesis" / "examples")
        name = settings.get_current_profile_name()
        settings.register_profile(name, usual, database=here)
        settings.load_profile(name)


def _main() -> None:
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # pytest collects garbage at its end; that of the imports is none
    order = _next_order()
    _become(order)
    runpy.run_module(order["command"][0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
