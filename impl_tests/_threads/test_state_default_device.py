"""impl._threads.state: default devices that a replica sets."""

import pytest
import torch
from torch import nn

from impl import parallel_apply


class SetDefaultDevice(nn.Module):
    """A module that sets the default device."""

    def __init__(self, device):
        super().__init__()
        self.device = device

    def forward(self, x):
        torch.set_default_device(self.device)
        return x


@pytest.mark.parametrize("own", [None, "meta"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_the_default_device_of_the_caller_is_restored(own, replicas):
    modules = [SetDefaultDevice(own) for _ in range(replicas)]
    torch.set_default_device("cpu:0")
    try:
        parallel_apply(modules, [torch.ones(1)] * replicas, in_turn=True)
        assert torch.empty(1).device.type == "cpu"
        assert torch.get_default_device() == torch.device("cpu", 0)
    finally:
        torch.set_default_device(None)
