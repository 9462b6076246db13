"""impl._device.placement: the devices of a module, without device arguments."""

import torch
from torch import nn

from impl._device import placement

CPU = torch.device("cpu")


def test_without_arguments_all_devices_are_used(topology):
    module = nn.Linear(1, 1).to(topology.device(0))
    found = placement.choose_devices(None, None, module)
    assert found == ([*range(len(topology.devices))], 0, topology.device(0))
    assert placement.choose_devices(None, None, nn.Identity()) == found
    assert placement.choose_devices(None, None, module.forward) == found


def test_devices_of_the_cpu_may_have_outputs_elsewhere(topology):
    assert placement.choose_devices([CPU], 1) == ([CPU], 1, CPU)


def test_device_ids_may_be_an_iterator_over_devices(topology):
    assert placement.choose_devices(range(2), None) == ([0, 1], 0, topology.device(0))
