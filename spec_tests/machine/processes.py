"""Runs programs in a process of their own, because their calls may end the process or hang."""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from functools import cache
from pathlib import Path

from spec_tests.machine.devices import Topology
from spec_tests.machine.fork_server import ForkServer
from spec_tests.machine.target import Target

#: Seconds after which a program counts as hanging and is killed.
PROGRAM_LIMIT = 120
#: Seconds that a process has to end by itself.
_END_LIMIT = 5
#: Variables with which PyTorch has no accelerator. Without the second one, ``import torch`` loads
#: an installed back end.
_HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}

#: Code that is put before a script that uses an accelerator.
_PROLOGUE = """
import os, signal, sys, threading, time
import torch
from torch import nn
from spec_tests.machine.target import Target
from spec_tests.machine.devices import make_topology

signal.signal(signal.SIGINT, signal.default_int_handler)  # Background jobs ignore SIGINT.
topology = make_topology({accelerator!r}, {ordinals!r})
target = Target({target!r}, {mapping!r})
parallel_apply = target.parallel_apply.parallel_apply


class Lambda(nn.Module):
    def __init__(self, function, *args):
        super().__init__()
        self.function, self.args = function, args

    def forward(self):
        return self.function(*self.args)


def run(*modules):
    devices = [device.index for device in topology.take(len(modules))]
    return parallel_apply(modules, [()] * len(modules), None, devices)

"""


#: Code that is put before a script that runs without an accelerator.
_WITHOUT_ACCELERATOR = """
import torch
from torch import nn
from spec_tests.machine.target import Target

assert torch.accelerator.current_accelerator(check_available=True) is None
target = Target({target!r}, {mapping!r})

"""


def run_script(
    script: str, target: Target, topology: Topology
) -> subprocess.CompletedProcess[str]:
    """Run ``script`` and return its exit status and output.

    The script can use ``run``, ``Lambda``, ``target`` and ``topology``. On simulated devices
    SIGALRM ends it after `PROGRAM_LIMIT` seconds.

    Raises:
        subprocess.TimeoutExpired: the script runs longer than `PROGRAM_LIMIT` on real devices.
    """
    prologue = _PROLOGUE.format(
        accelerator=topology.accelerator,
        ordinals=",".join(map(str, topology.ordinals)),
        target=target.name,
        mapping=target.mapping,
    )
    script = f"{prologue}{textwrap.dedent(script)}"
    if topology.accelerator == "sim":
        return run_program(script)
    # The import of torch may use a device, which then fails in a forked process.
    return _run_process(sys.executable, "-c", script)


def run_without_accelerator(script: str, target: Target) -> subprocess.CompletedProcess[str]:
    """Run ``script``, which can use ``target``, without an accelerator; return status and output.

    SIGALRM ends it after `PROGRAM_LIMIT` seconds.
    """
    prologue = _WITHOUT_ACCELERATOR.format(target=target.name, mapping=target.mapping)
    return run_program(f"{prologue}{textwrap.dedent(script)}")


def run_program(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program without real accelerators; return its exit status and output.

    torch is imported before. SIGALRM ends the program after `PROGRAM_LIMIT` seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "program.py").write_text(text, encoding="utf-8")
        return server().run(
            "program",
            *arguments,
            cwd=Path(folder),
            env={**_environment(), **_HIDDEN},
            seconds=PROGRAM_LIMIT,
        )


def _run_process(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process group of its own; return its exit status and output.

    At the end all processes of the group are killed.
    """
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = subprocess.Popen(
            command, env=_environment(), stdout=stdout, stderr=stderr, start_new_session=True
        )
        try:
            status = process.wait(PROGRAM_LIMIT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(command, status, stdout.read(), stderr.read())


@cache
def server() -> ForkServer:
    """Return the server of this process, which imports torch without real accelerators."""
    found = ForkServer(**_HIDDEN)
    atexit.register(found.close)
    return found


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def end_soon(status: int) -> None:
    """End this process with ``status`` in a few seconds, although a thread may never end."""
    timer = threading.Timer(_END_LIMIT, os._exit, (status,))
    timer.daemon = True
    timer.start()
