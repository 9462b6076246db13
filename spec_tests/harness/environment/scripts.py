"""Runs scripts in a new Python process, because their calls may end the process or hang."""

import os
import subprocess
import sys
import textwrap

from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology

#: Seconds after which a script counts as hanging and is killed.
TIME_LIMIT = 60

#: Code that is put before a script that uses an accelerator.
_PROLOGUE = """
import os, signal, sys, threading, time
import torch
from torch import nn
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import make_topology

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
from spec_tests.harness.environment.target import Target

assert torch.accelerator.current_accelerator(check_available=True) is None
target = Target({target!r}, {mapping!r})

"""


def run_script(
    script: str, target: Target, topology: Topology
) -> subprocess.CompletedProcess[str]:
    """Run ``script`` and return its exit status and output.

    The script can use ``run``, ``Lambda``, ``target`` and ``topology``.

    Raises:
        subprocess.TimeoutExpired: the script runs longer than `TIME_LIMIT`.
    """
    prologue = _PROLOGUE.format(
        accelerator=topology.accelerator,
        ordinals=",".join(map(str, topology.ordinals)),
        target=target.name,
        mapping=target.mapping,
    )
    return _run(prologue + textwrap.dedent(script))


def run_without_accelerator(script: str, target: Target) -> subprocess.CompletedProcess[str]:
    """Run ``script``, which can use ``target``, without an accelerator; return status and output.

    Raises:
        subprocess.TimeoutExpired: the script runs longer than `TIME_LIMIT`.
    """
    prologue = _WITHOUT_ACCELERATOR.format(target=target.name, mapping=target.mapping)
    # Without the second variable, ``import torch`` loads an installed back end.
    hidden = {"CUDA_VISIBLE_DEVICES": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    return _run(prologue + textwrap.dedent(script), **hidden)


def _run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
