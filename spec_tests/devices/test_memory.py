"""Memory of devices and pinned memory: addresses, and reuse."""

import torch
from torch import accelerator

from spec_tests.checks.side_streams import DELAY, late_copies
from spec_tests.machine.capabilities import require
from spec_tests.machine.clauses import clause
from spec_tests.machine.devices import queue_work


@clause("devices.memory.record-stream")
def test_the_current_stream_is_recorded(topology):
    for device in topology.devices:
        tensor = torch.ones(1, device=device)
        tensor.record_stream(accelerator.current_stream(device.index))


@clause("devices.memory.record-stream")
def test_memory_is_not_reused_before_the_recorded_stream_has_read_it(topology):
    require("new-streams")
    device = topology.device(0)
    current = accelerator.current_stream(device.index)
    with late_copies(topology):
        tensor = torch.ones(2**16, device=device)
        side = torch.Stream(device)
        side.wait_stream(current)
        with side:
            queue_work(device, DELAY)
            read = tensor * 2
        tensor.record_stream(side)
        del tensor
        new = [torch.zeros(2**16, device=device) for _ in range(8)]
        current.wait_stream(side)
        found = read.cpu().eq(2).all()
    del new
    assert found, "the recorded stream reads memory that another tensor has"


@clause("devices.memory.addresses")
def test_a_view_has_the_address_of_its_first_element(topology):
    tensor, other = (torch.ones(2, device=topology.device(0)) for _ in range(2))
    assert tensor[1:].data_ptr() == tensor.data_ptr() + 4, "a view is not behind its tensor"
    assert len({0, tensor.data_ptr(), other.data_ptr()}) == 3, "two tensors have one address"


@clause("devices.memory.pinned")
def test_pinned_memory_is_pinned_and_has_the_values(topology):
    pinned = torch.arange(3.0).pin_memory()
    assert pinned.is_pinned(), "is_pinned() is False"
    assert pinned.tolist() == [0, 1, 2], f"pin_memory() copies {pinned.tolist()}"
    assert not torch.arange(3.0).is_pinned(), "is_pinned() is True for pageable memory"
