"""PyTorch's own calls of its operators agree with the CPU, or are refused as listed.

The sweep runs in processes of its own: PyTorch's helpers change the settings of whoever imports
them, and an operator that crashes takes its process along.
"""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from spec_tests.meta_tests.operator_sweep import exceptions
from spec_tests.meta_tests.operator_sweep.exceptions import Exceptions, Refusal
from spec_tests.meta_tests.operator_sweep.trial import DEVICE, Comparison, Outcome, compare

ROOT = Path(__file__).parents[2]
AGREES, REFUSED = Outcome("agrees"), Outcome("refused", "aten::a is not implemented")
LISTED = Exceptions((Refusal(("a",), ("int64",), "aten::a", "why"),), frozenset(), frozenset())


def sweep(*arguments):
    return subprocess.run(
        [
            sys.executable,
            "-X",
            "faulthandler",
            "-m",
            "spec_tests.meta_tests.operator_sweep",
            *arguments,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.usefixtures("sim")
def test_operators_of_the_database_agree_with_the_cpu():
    done = sweep("--quick")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.usefixtures("sim")
def test_no_agreeing_call_is_a_failure():
    assert sweep("no such operator").returncode == 1


@pytest.mark.usefixtures("sim")
@pytest.mark.parametrize("kwargs", [{}, {"device": DEVICE}, {"device": "cpu"}], ids=str)
@pytest.mark.parametrize("wrong", ["sim:2", None], ids="answers-on={}".format)
def test_a_call_is_to_answer_where_it_asks(kwargs, wrong):
    sample = SimpleNamespace(input=torch.ones(2, device=DEVICE), args=((3,),), kwargs=kwargs)

    def answer(tensor, *args, **kwargs):
        made = tensor.new_ones(*args, **kwargs)
        return made.to(wrong) if wrong and tensor.device.type == "sim" else made

    found = compare(answer, sample, Comparison(), gradients=False)
    assert found.verdict == ("differs" if wrong else "agrees")
    assert f"on {wrong}" in found.detail or not wrong


@pytest.mark.parametrize(
    ("operator", "dtype", "outcomes", "complaint"),
    [
        ("b", "int64", [AGREES], None),
        ("b", "int64", [], None),
        ("b", "int64", [AGREES, REFUSED], "is refused: aten::a is not implemented"),
        ("b", "int64", [AGREES, Outcome("differs", "by one")], "by one"),
        ("a", "int64", [REFUSED, AGREES], None),
        ("a", "int64", [AGREES], "is listed as refused, but works"),
        ("a", "int64", [REFUSED, Outcome("refused", "other")], "is refused: other"),
        ("a", "int64", [REFUSED, Outcome("differs", "by one")], "by one"),
        ("a", "bool", [REFUSED], "is refused: aten::a is not implemented"),
    ],
)
def test_refusals_are_strict(operator, dtype, outcomes, complaint):
    assert LISTED.complaint(operator, dtype, outcomes) == complaint


def test_the_list_of_exceptions_is_sound():
    listed = exceptions.load()
    assert listed.uninitialised
    assert all(refusal.reason and refusal.says for refusal in listed.refusals)
