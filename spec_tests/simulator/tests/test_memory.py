"""Allocated memory is counted for each device separately."""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("sim")

ORDINAL = 3
DEVICE = f"sim:{ORDINAL}"


@pytest.fixture
def allocated():
    """Return a function that returns the number of bytes allocated since the start of the test."""
    start = torch.sim.memory_allocated(ORDINAL)
    torch.sim.reset_peak_memory_stats(ORDINAL)
    return lambda: torch.sim.memory_allocated(ORDINAL) - start


def test_memory_of_a_tensor_is_counted_until_its_last_view_is_freed(allocated):
    x = torch.empty(1000, device=DEVICE)
    assert allocated() == 4000
    view = x[10:]
    del x
    assert allocated() == 4000
    del view
    assert allocated() == 0


def test_memory_of_a_result_is_counted_once(allocated):
    x = torch.ones(1000, device=DEVICE)
    y = x + 1
    assert allocated() == 8000
    x.add_(y)
    assert allocated() == 8000
    del x, y
    assert allocated() == 0


def test_reset_sets_the_peak_to_the_allocated_memory(allocated):
    base = torch.sim.memory_allocated(ORDINAL)
    torch.empty(1000, device=DEVICE)
    assert allocated() == 0
    assert torch.sim.max_memory_allocated(ORDINAL) == base + 4000
    torch.sim.reset_peak_memory_stats(ORDINAL)
    assert torch.sim.max_memory_allocated(ORDINAL) == base


def test_resized_memory_is_counted_with_its_new_size(allocated):
    x = torch.empty(10, device=DEVICE)
    x.resize_(1000)
    assert allocated() == 4000
    x.untyped_storage().resize_(100)
    assert allocated() == 100


def test_torch_accelerator_reports_the_same_memory(allocated):
    x = torch.empty(1000, device=DEVICE)
    assert torch.accelerator.memory_allocated(ORDINAL) == torch.sim.memory_allocated(ORDINAL)
    assert torch.sim.memory_stats(DEVICE)["allocated_bytes.all.current"] >= x.nbytes
    free, total = torch.accelerator.get_memory_info(ORDINAL)
    assert total - free == torch.sim.memory_allocated(ORDINAL)
    torch.sim.empty_cache()


def test_memory_allocated_defaults_to_the_current_device(allocated):
    x = torch.empty(1000, device=DEVICE)
    with torch.sim.device(ORDINAL):
        assert torch.sim.memory_allocated() == torch.sim.memory_allocated(ORDINAL)
    del x
