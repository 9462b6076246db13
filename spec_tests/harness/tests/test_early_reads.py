"""Calls with complex tensors are not compared with torch.nn.parallel where it reads too early."""

import contextlib
import dataclasses
import json

import pytest
import torch

from spec_tests.harness.compare import checks, early_reads
from spec_tests.harness.environment import capabilities
from spec_tests.harness.environment.target import Target
from spec_tests.harness.tests.small_suite import TWO_TESTS

pytest_plugins = ["pytester"]
REFERENCE = Target("torch.nn.parallel")


@dataclasses.dataclass
class Sum:
    """A call whose result on torch.nn.parallel is wrong, as after an early read."""

    dtype: torch.dtype

    def inputs(self, topology):
        return {"x": torch.ones(2, dtype=self.dtype)}

    def run(self, target, inputs):
        return inputs["x"] * (0 if target is REFERENCE else 1)


@pytest.fixture(params=["asynchronous", "synchronous"])
def is_asynchronous(request, topology):
    """Whether operators are asynchronous on devices whose ``view_as_complex`` copies."""
    used = capabilities.in_use()
    names = used.features - {"asynchronous-operators"}
    found = request.param == "asynchronous"
    names |= {"asynchronous-operators"} if found else set()
    capabilities.use(dataclasses.replace(used, features=names))
    early_reads._reads_early.cache_clear()
    yield found
    early_reads._reads_early.cache_clear()
    early_reads.take_count()
    capabilities.use(used)


@pytest.mark.parametrize("copies", [False, True], ids="view_as_complex_copies={}".format)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_only_complex_tensors_that_are_read_early_are_not_compared(
    oracle, topology, monkeypatch, is_asynchronous, dtype, copies
):
    view = torch.view_as_complex
    if copies:
        monkeypatch.setattr(torch, "view_as_complex", lambda pairs: view(pairs).clone())
    is_affected = dtype.is_complex and copies and is_asynchronous
    text = "target and torch.nn.parallel disagree on"
    with contextlib.nullcontext() if is_affected else pytest.raises(AssertionError, match=text):
        checks.agree(Sum(dtype), oracle, [REFERENCE, oracle], topology)
    assert bool(early_reads.take_count()) == is_affected


@pytest.mark.machinery
@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_a_run_counts_the_tests_that_do_not_compare(run_suite, tmp_path, workers):
    count = "from spec_tests.harness.compare import early_reads\n"
    two = "early_reads._affected.extend([1, 2, 3])"
    file = tmp_path / "verdicts.jsonl"
    body = count + TWO_TESTS.format(one=True, two=two)
    done = run_suite(body, workers, f"--verdicts={file}")
    done.stdout.fnmatch_lines("tests that do not compare all calls: 1; complex tensors are *")
    _, *lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    assert {each["clause"]: each.get("not-compared") for each in lines} == {
        "a.one": None,
        "a.two": "3",
    }
