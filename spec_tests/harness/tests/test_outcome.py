"""`observe` seeds the random number generators before each call."""

import pytest
import torch

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.outcome import observe


class RandomCall:
    """A call that draws random numbers on one device."""

    def __init__(self, device):
        self.device = device

    def inputs(self, _topology):
        return {}

    def run(self, _target, _inputs):
        return torch.rand(5, device=self.device)


@pytest.mark.parametrize("slot", [None, 1], ids="device={}".format)
def test_a_repeated_call_draws_equal_random_numbers(target, topology, slot):
    call = RandomCall("cpu" if slot is None else topology.device(slot))
    first, second = (observe(call, target, topology).result for _ in range(2))
    assert checks.difference(first, second, path="result", tolerance=checks.EXACT) is None


def test_generators_are_seeded_without_manual_seed_all(target, topology, monkeypatch):
    topology.require(distinct=1)
    monkeypatch.delattr(torch.get_device_module(topology.accelerator), "manual_seed_all")
    call = RandomCall(torch.device(topology.accelerator))
    first, second = (observe(call, target, topology).result for _ in range(2))
    assert checks.difference(first, second, path="result", tolerance=checks.EXACT) is None
