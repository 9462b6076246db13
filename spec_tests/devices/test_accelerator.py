"""The device module, such as torch.cuda, and torch.accelerator agree."""

import torch
from torch import accelerator

from spec_tests.checks.side_streams import late_copies, queued_arange
from spec_tests.machine.clauses import clause


def _module(topology):
    return torch.get_device_module(topology.device(0))


@clause("devices.accelerator.available")
def test_the_devices_are_available(topology):
    assert _module(topology).is_available() is True, "is_available() is not True"
    found = accelerator.current_accelerator()
    assert found.type == topology.accelerator, f"the current accelerator is {found}"


@clause("devices.accelerator.count")
def test_both_count_the_same_devices(topology):
    found, expected = _module(topology).device_count(), accelerator.device_count()
    assert found == expected > max(topology.ordinals), f"device_count() is {found}, {expected}"


@clause("devices.accelerator.current-device")
def test_both_have_the_same_current_device(topology):
    for device in topology.devices:
        with accelerator.device_index(device.index):
            found = _module(topology).current_device()
        assert found == device.index, f"with {device} current, current_device() is {found}"


@clause("devices.accelerator.synchronize")
def test_the_host_reads_a_copy_after_it_has_waited(topology):
    for slot in range(topology.distinct):
        found = torch.zeros(4)
        with late_copies(topology):
            found.copy_(queued_arange(topology, slot, 4), non_blocking=True)
            accelerator.synchronize(topology.device(slot).index)
            numbers = found.tolist()
        assert numbers == [1, 2, 3, 4], f"the host reads {numbers} after synchronize()"
