"""Calls with complex tensors are not compared with torch.nn.parallel where it reads too early."""

import contextlib
import dataclasses

import pytest
import torch

from spec_tests.harness.compare import checks, early_reads
from spec_tests.harness.environment import capabilities
from spec_tests.harness.environment.target import Target

REFERENCE = Target("torch.nn.parallel")


@dataclasses.dataclass
class Sum:
    """A call whose result on torch.nn.parallel is wrong, as after an early read."""

    dtype: torch.dtype

    def inputs(self, topology):
        return {"x": torch.ones(2, dtype=self.dtype)}

    def run(self, target, inputs):
        return inputs["x"] * (0 if target is REFERENCE else 1)


@pytest.mark.parametrize(
    ("dtype", "copies", "missing", "is_compared"),
    [
        (torch.complex64, True, set(), False),
        (torch.float32, True, set(), True),
        (torch.complex64, False, set(), True),
        (torch.complex64, True, {"asynchronous-operators"}, True),
    ],
    ids=["read early", "real", "view", "synchronous"],
)
def test_only_complex_tensors_that_are_read_early_are_not_compared(
    oracle, topology, monkeypatch, dtype, copies, missing, is_compared
):
    view, used = torch.view_as_complex, capabilities.in_use()
    if copies:
        monkeypatch.setattr(torch, "view_as_complex", lambda pairs: view(pairs).clone())
    features = (used.features | {"asynchronous-operators"}) - missing
    monkeypatch.setattr(capabilities, "_used", [dataclasses.replace(used, features=features)])
    monkeypatch.setattr(early_reads, "_reads_early", early_reads._reads_early.__wrapped__)
    text = "target and torch.nn.parallel disagree on"
    with pytest.raises(AssertionError, match=text) if is_compared else contextlib.nullcontext():
        checks.agree(Sum(dtype), oracle, [REFERENCE, oracle], topology)
