"""Programs in plain PyTorch for faults of a back end: the simulator with one wrong operator."""

import sys
import threading

import pytest
import torch

from spec_tests.harness.programs.expressions import NoExpressionError
from spec_tests.harness.programs.operator_call import OperatorCall
from spec_tests.harness.programs.search import FirstFailure, find
from spec_tests.harness.tests.fixtures import ROOT

pytestmark = pytest.mark.slow

#: The module that registers the back end. ``abs`` refuses a dtype, ``neg`` is
#: wrong for some strides, ``sign`` warns, and ``triu`` ends the process.
BACK_END = """
import os
import warnings
import torch
from spec_tests import simulator

simulator.enable(device_count=2)
library = torch.library.Library("aten", "IMPL")

def abs(x):
    if x.dtype == torch.int64:
        raise RuntimeError(f"abs has no kernel for {x.dtype} with {x.numel()} elements")
    return x.cpu().abs().to(x.device)

def neg(x):
    return (-x.cpu() if x.is_contiguous() else x.cpu() + 1).to(x.device)

def sign(x):
    warnings.warn("aten::sign is slow")
    return x.cpu().sign().to(x.device)

def triu(x, diagonal=0):
    os.abort()

for name, function in {"abs": abs, "neg": neg, "sign": sign, "triu": triu}.items():
    library.impl(name, function, "PrivateUse1")
"""
TESTS = """
import threading
import torch
import pytest

def test_error_in_a_thread():
    x = torch.arange(6, device="sim:1").reshape(3, 2)
    errors = []
    def run():
        try:
            torch.abs(x * 2)
        except RuntimeError as error:
            errors.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    raise errors[0]

def test_error_of_arguments():
    torch.ones(2, device="sim:0") @ torch.ones(3, device="sim:0")

def test_error_of_the_target():
    raise RuntimeError("too many chunks")

def test_wrong_value():
    x = torch.ones(2, 3, device="sim:0")
    assert torch.equal((-x).cpu(), -x.cpu())
    assert torch.equal((-x.t()).cpu(), -x.cpu().t())

def test_right_value():
    assert torch.ones(2, device="sim:0").sum().item() == 3

@pytest.mark.filterwarnings("error")
def test_warning():
    torch.sign(torch.ones(2, device="sim:0"))

def test_end():
    torch.triu(torch.ones(1, 2, device="sim:0"))
"""
CAUSES = {
    "test_error_in_a_thread": "RuntimeError: abs has no kernel for torch.int64 with 6 elements",
    "test_error_of_arguments": "RuntimeError: inconsistent tensor size, expected tensor [2] and "
    "src [3] to have the same number of elements, but got 2 and 3 elements respectively",
    "test_error_of_the_target": "RuntimeError: too many chunks",
    "test_wrong_value": "assert False",
    "test_right_value": "assert 2.0 == 3",
    "test_warning": "UserWarning: aten::sign is slow",
    "test_end": "the test ends the process",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with the back end and the tests."""
    (tmp_path / "backend.py").write_text(BACK_END)
    (tmp_path / "test_it.py").write_text(TESTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(ROOT)
    return tmp_path


def test_a_program_shows_each_fault_of_the_back_end_without_the_target(folder):
    def command(clauses):
        assert clauses == ["a.b"]
        return [sys.executable, "-m", "pytest", str(folder), "-p", "backend", "-n0"]

    failures = [FirstFailure(text, "a.b", test) for test, text in CAUSES.items()]
    found = find(failures, command, ["backend"])
    programs = {test: found[text] for test, text in CAUSES.items() if text in found}
    assert set(programs) == {
        "test_error_in_a_thread",
        "test_wrong_value",
        "test_warning",
        "test_end",
    }
    assert programs["test_error_in_a_thread"].splitlines() == [
        "import backend",
        "import torch",
        "",
        'device = "sim:1"',
        "a = torch.arange(6).reshape((3, 2)).to(device)",
        "torch.ops.aten.abs.default(a)",
    ]
    assert ".as_strided((3, 2), (1, 3))" in programs["test_wrong_value"]
    assert "torch.ops.aten.neg.default(a)" in programs["test_wrong_value"]


def test_a_call_without_an_accelerator_or_with_an_unknown_argument_is_not_recorded():
    function = torch.ops.aten.add.Tensor
    assert OperatorCall.of(function, (torch.ones(1), 2), {}, 0) is None
    for argument in (threading.Lock(), torch.eye(2).to_sparse(), torch.ones(1) * 1j):
        value = argument.conj() if isinstance(argument, torch.Tensor) else argument
        with pytest.raises(NoExpressionError):
            OperatorCall.of(function, (value,), {}, 0)
