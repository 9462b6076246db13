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


@pytest.fixture
def copying_views(monkeypatch):
    view = torch.view_as_complex
    monkeypatch.setattr(torch, "view_as_complex", lambda pairs: view(pairs).clone())


def expect_comparison(call, oracle, topology, *, is_made):
    """Check whether the wrong result of torch.nn.parallel fails the comparison."""
    text = "target and torch.nn.parallel disagree on"
    with pytest.raises(AssertionError, match=text) if is_made else contextlib.nullcontext():
        checks.agree(call, oracle, [REFERENCE, oracle], topology)
    assert bool(early_reads.take_count()) != is_made


def test_complex_tensors_are_not_compared_where_they_are_read_early(
    oracle, topology, is_asynchronous, copying_views
):
    expect_comparison(Sum(torch.complex64), oracle, topology, is_made=not is_asynchronous)


def test_real_tensors_are_always_compared(oracle, topology, is_asynchronous, copying_views):
    expect_comparison(Sum(torch.float32), oracle, topology, is_made=True)


def test_complex_tensors_are_compared_where_view_as_complex_returns_views(
    oracle, topology, is_asynchronous
):
    expect_comparison(Sum(torch.complex64), oracle, topology, is_made=True)


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
