"""Memory in use is counted for each device by itself."""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("sim")

ORDINAL = 3
DEVICE = f"sim:{ORDINAL}"


@pytest.fixture
def used():
    """How much more of the device is in use than when the test began."""
    begin = torch.sim.memory_allocated(ORDINAL)
    torch.sim.reset_peak_memory_stats(ORDINAL)
    return lambda: torch.sim.memory_allocated(ORDINAL) - begin


def test_a_tensor_counts_while_it_lives(used):
    x = torch.empty(1000, device=DEVICE)
    assert used() == 4000
    view = x[10:]
    del x
    assert used() == 4000
    del view
    assert used() == 0


def test_results_of_operators_count_once(used):
    x = torch.ones(1000, device=DEVICE)
    y = x + 1
    assert used() == 8000
    x.add_(y)
    assert used() == 8000
    del x, y
    assert used() == 0


def test_copies_count_where_they_go(used):
    x = torch.ones(1000, device="sim:1")
    assert used() == 0
    y = x.to(DEVICE)
    assert used() == 4000
    del y


def test_the_peak_is_kept_until_it_is_reset(used):
    base = torch.sim.memory_allocated(ORDINAL)
    torch.empty(1000, device=DEVICE)
    assert used() == 0
    assert torch.sim.max_memory_allocated(ORDINAL) == base + 4000
    torch.sim.reset_peak_memory_stats(ORDINAL)
    assert torch.sim.max_memory_allocated(ORDINAL) == base


def test_resized_memory_counts_as_it_is(used):
    x = torch.empty(10, device=DEVICE)
    x.resize_(1000)
    assert used() == 4000
    x.untyped_storage().resize_(100)
    assert used() == 100


def test_the_accelerator_tells_the_same(used):
    x = torch.empty(1000, device=DEVICE)
    assert torch.accelerator.memory_allocated(ORDINAL) == torch.sim.memory_allocated(ORDINAL)
    assert torch.sim.memory_stats(DEVICE)["allocated_bytes.all.current"] >= x.nbytes
    free, total = torch.accelerator.get_memory_info(ORDINAL)
    assert total - free == torch.sim.memory_allocated(ORDINAL)
    torch.sim.empty_cache()


def test_the_current_device_is_the_default(used):
    x = torch.empty(1000, device=DEVICE)
    with torch.sim.device(ORDINAL):
        assert torch.sim.memory_allocated() == torch.sim.memory_allocated(ORDINAL)
    del x


def test_a_training_step_leaves_no_memory_behind(used):
    x = torch.randn(8, 4, device=DEVICE)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).to(DEVICE)
    held = used()
    for _ in range(3):
        net(x).sum().backward()
        net.zero_grad()
    assert used() == held
