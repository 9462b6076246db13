"""A server that runs ``python -m MODULE ...`` in processes forked after the import of torch.

The import of torch takes half the time of a small run; the server imports torch once. Each command
has its own process, working directory, environment and output. The server itself uses no device.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Modules that the server imports. The first call of torch.autograd.grad needs symbolic_shapes.
_IMPORTED = ("torch", "torch.fx.experimental.symbolic_shapes", "numpy", "hypothesis")


class ForkServer:
    """A process that forks a child for each command. The first command starts the process.

    Args:
        environment: Variables that the import of torch reads.
    """

    def __init__(self, **environment: str) -> None:
        self._environment = environment
        self._server: subprocess.Popen[str] | None = None

    def run(
        self, *command: str, cwd: Path, env: Mapping[str, str], seconds: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Run ``python -m *command`` in the folder ``cwd``; return its exit status and output.

        SIGALRM ends the command after some seconds; with 0 seconds it has no time limit.
        """
        with tempfile.TemporaryDirectory() as folder:
            outputs = [Path(folder) / name for name in ("stdout", "stderr")]
            request = {
                "command": command,
                "cwd": str(cwd),
                "env": dict(env),
                "outputs": [str(path) for path in outputs],
                "seconds": seconds,
            }
            status = self._send(request)
            texts = [path.read_text(encoding="utf-8", errors="replace") for path in outputs]
        return subprocess.CompletedProcess(command, status, *texts)

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.communicate()
            self._server = None

    def _send(self, request: Mapping[str, Any]) -> int:
        if self._server is None:
            # Without PYTHONPATH and with -P, sys.path has only Python's own folders.
            command = [sys.executable, "-P", __file__]
            env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            env |= self._environment
            self._server = subprocess.Popen(
                command, stdin=-1, stdout=-1, text=True, env=env, start_new_session=True
            )
        server = self._server
        assert server.stdin is not None
        assert server.stdout is not None
        print(json.dumps(request), file=server.stdin, flush=True)
        return int(server.stdout.readline())


def _fork_for_each_request() -> Any:
    """Fork a child for each request; return the request in the child. Exit after the last one."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            return json.loads(line)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    sys.exit()


def _set_up_process(request: Mapping[str, Any]) -> None:
    """Set standard streams, folder, environment, sys.path and sys.argv as in a new process."""
    signal.alarm(request["seconds"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(request["outputs"], 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [request["cwd"], *filter(None, python_path)]
    sys.argv = list(request["command"])


def _main() -> None:
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # The garbage collection at the end of pytest then skips the imported objects.
    request = _fork_for_each_request()
    _set_up_process(request)
    runpy.run_module(request["command"][0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
