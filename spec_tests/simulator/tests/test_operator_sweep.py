"""The operator sweep: the operators of PyTorch's OpInfo database agree with the CPU.

The sweep runs in a subprocess, because importing PyTorch's test helpers changes global settings,
and because an operator that crashes ends its process.
"""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from spec_tests.harness.tests.fixtures import ROOT
from spec_tests.simulator.tests.operator_sweep import sweep
from spec_tests.simulator.tests.operator_sweep.trial import DEVICE, Comparison, Trial, compare

AGREES, DIFFERS = Trial("agrees"), Trial("differs", "by one")
RAISES = Trial("unimplemented", "aten::_sparse_mm_reduce_impl is not implemented")


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
    ("function", "verdict", "detail"),
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
def test_verdict_of_a_call(function, verdict, detail):
    sample = SimpleNamespace(input=torch.ones(2, device=DEVICE), args=(), kwargs={})
    outcome = compare(function, sample, Comparison(), with_gradients=False)
    assert outcome.verdict == verdict
    assert detail in outcome.detail


@pytest.mark.parametrize(
    ("operator", "outcomes", "problem"),
    [
        ("add", [AGREES], None),
        ("add", [AGREES, RAISES], f"unimplemented: {RAISES.detail}"),
        ("add", [AGREES, DIFFERS], "differs: by one"),
        ("sparse.mm.reduce", [RAISES, AGREES], None),
        ("sparse.mm.reduce", [AGREES], "is listed as not implemented, but works"),
        ("sparse.mm.reduce", [RAISES, DIFFERS], "differs: by one"),
    ],
)
def test_problem_is_an_unlisted_error_or_a_listed_error_that_does_not_occur(
    operator, outcomes, problem
):
    assert sweep.find_problem(operator, outcomes) == problem
