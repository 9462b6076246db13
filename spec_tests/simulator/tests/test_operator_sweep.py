"""The operator sweep: the operators of PyTorch's OpInfo database agree with the CPU.

The sweep runs in a subprocess, because importing PyTorch's test helpers changes global settings,
and because an operator that crashes ends its process.
"""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from spec_tests.machine.tests.fixtures import ROOT
from spec_tests.simulator.tests.operator_sweep.trial import DEVICE, Comparison, compare


@pytest.mark.usefixtures("sim")
def test_quick_sweep_passes():
    command = [sys.executable, "-X", "faulthandler", "-m"]
    result = subprocess.run(
        [*command, "spec_tests.simulator.tests.operator_sweep", "--quick"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]


@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize(
    ("function", "result", "detail"),
    [
        (lambda x: x * 2, "agrees", ""),
        (lambda x: x.new_ones(2, device="cpu"), "differs", "on cpu"),
        (lambda x: x + (x.device.type == "sim"), "differs", "not close"),
        (lambda x: x[:: 1 + (x.device.type == "sim")], "differs", "shape"),
        (
            lambda x: x.expand(2, 2).t() if x.device.type == "sim" else x.expand(2, 2),
            "differs",
            "",
        ),
        (lambda x: x.batch_norm(), "unsupported", "batch_norm"),
    ],
)
def test_result_of_a_call(function, result, detail):
    sample = SimpleNamespace(input=torch.ones(2, device=DEVICE), args=(), kwargs={})
    trial = compare(function, sample, Comparison(), with_gradients=False)
    assert trial.result == result
    assert detail in trial.detail
