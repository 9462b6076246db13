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
from spec_tests.simulator.tests.operator_sweep import allowed_differences
from spec_tests.simulator.tests.operator_sweep.allowed_differences import (
    AllowedDifferences,
    AllowedError,
)
from spec_tests.simulator.tests.operator_sweep.trial import DEVICE, Comparison, Trial, compare

AGREES, RAISES = Trial("agrees"), Trial("unimplemented", "aten::a is not implemented")
#: The operator ``a`` may raise NotImplementedError in int64.
ALLOWED = AllowedDifferences(
    (AllowedError(("a",), ("int64",), "aten::a", "why"),), frozenset(), frozenset()
)


def sweep(*arguments):
    return subprocess.run(
        [
            sys.executable,
            "-X",
            "faulthandler",
            "-m",
            "spec_tests.simulator.tests.operator_sweep",
            *arguments,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.usefixtures("sim")
def test_quick_sweep_passes():
    result = sweep("--quick")
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]


@pytest.mark.machinery
@pytest.mark.usefixtures("sim")
def test_sweep_without_calls_fails():
    assert sweep("no such operator").returncode == 1


@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize("kwargs", [{}, {"device": DEVICE}, {"device": "cpu"}], ids=str)
@pytest.mark.parametrize("wrong", ["sim:2", None], ids="wrong-device={}".format)
def test_compare_checks_the_device_of_the_result(kwargs, wrong):
    sample = SimpleNamespace(input=torch.ones(2, device=DEVICE), args=((3,),), kwargs=kwargs)

    def function(tensor, *args, **kwargs):
        result = tensor.new_ones(*args, **kwargs)
        return result.to(wrong) if wrong and tensor.device.type == "sim" else result

    outcome = compare(function, sample, Comparison(), with_gradients=False)
    assert outcome.verdict == ("differs" if wrong else "agrees")
    assert f"on {wrong}" in outcome.detail or not wrong


@pytest.mark.parametrize(
    ("operator", "dtype", "outcomes", "problem"),
    [
        ("b", "int64", [AGREES], None),
        ("b", "int64", [], None),
        ("b", "int64", [AGREES, RAISES], f"raises NotImplementedError: {RAISES.detail}"),
        ("b", "int64", [AGREES, Trial("differs", "by one")], "by one"),
        ("a", "int64", [RAISES, AGREES], None),
        ("a", "int64", [AGREES], "is listed as not implemented, but works"),
        ("a", "int64", [RAISES, Trial("unimplemented", "b")], "raises NotImplementedError: b"),
        ("a", "int64", [RAISES, Trial("differs", "by one")], "by one"),
        ("a", "bool", [RAISES], f"raises NotImplementedError: {RAISES.detail}"),
    ],
)
def test_find_problem_returns_unlisted_errors_and_listed_errors_that_do_not_occur(
    operator, dtype, outcomes, problem
):
    assert ALLOWED.find_problem(operator, dtype, outcomes) == problem


def test_every_allowed_error_has_a_message_and_a_reason():
    allowed = allowed_differences.load()
    assert allowed.uninitialized
    assert all(error.reason and error.message for error in allowed.errors)
