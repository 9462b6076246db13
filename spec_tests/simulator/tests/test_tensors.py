"""Memory, ``out=``, random numbers, saving and moving of tensors.

The chapter `devices` checks views, copies, streams, events and the current device.
"""

import io

import pytest
import torch
from torch.utils.data import DataLoader

pytestmark = pytest.mark.usefixtures("sim")

ORDINAL = 2
DEVICE = f"sim:{ORDINAL}"
MAP_LOCATIONS = {
    "as saved": (None, DEVICE),
    "cpu": ("cpu", "cpu"),
    "current device": ("sim", "sim:0"),
    "renamed": ({DEVICE: "sim:3"}, "sim:3"),
}


@pytest.fixture
def allocated():
    """Return a function that returns the number of bytes allocated since the start of the test."""
    start = torch.sim.memory_allocated(ORDINAL)
    torch.sim.reset_peak_memory_stats(ORDINAL)
    return lambda: torch.sim.memory_allocated(ORDINAL) - start


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


def test_memory_of_a_device_is_counted_until_its_last_view_is_freed(allocated):
    x = torch.ones(1000, device=DEVICE)
    y = x + 1
    assert allocated() == 8000
    del y
    x = x[10:]
    assert allocated() == 4000
    x.untyped_storage().resize_(100)
    assert allocated() == 100
    assert torch.accelerator.memory_allocated(ORDINAL) == torch.sim.memory_allocated(ORDINAL)
    free, total = torch.accelerator.get_memory_info(ORDINAL)
    assert total - free == torch.sim.memory_allocated(ORDINAL)


def test_reset_sets_the_peak_to_the_allocated_memory(allocated):
    base = torch.sim.memory_allocated(ORDINAL)
    torch.empty(1000, device=DEVICE)
    assert torch.sim.max_memory_allocated(ORDINAL) == base + 4000
    torch.sim.reset_peak_memory_stats(ORDINAL)
    assert torch.sim.max_memory_allocated(ORDINAL) == base


@pytest.mark.parametrize(
    ("make", "stride", "offset"),
    [
        (lambda: torch.empty(0, device=DEVICE), (6, 1), 0),
        (lambda: torch.empty(9, device=DEVICE)[2:2], (6, 1), 2),
        (lambda: torch.empty(6, 4, device=DEVICE).t(), (1, 4), 0),
    ],
    ids=["empty", "empty with an offset", "of the right shape"],
)
def test_out_is_resized_if_its_shape_is_wrong(make, stride, offset):
    out, numbers = make(), torch.arange(1.0, 25).reshape(4, 6)
    torch.mul(numbers.to(DEVICE), 2, out=out)
    assert out.tolist() == (numbers * 2).tolist()
    assert (out.stride(), out.storage_offset()) == (stride, offset)


def test_set_shares_memory_with_the_source():
    x = torch.arange(6.0, device=DEVICE)
    y = torch.empty(0, device=DEVICE).set_(x.untyped_storage(), 2, (2,), (2,))
    y.zero_()
    assert x.tolist() == [0, 1, 0, 3, 0, 5]
    assert y.set_(x).data_ptr() == x.data_ptr()
    assert str(y.set_().device) == DEVICE


def test_generators_are_cloned_and_restored():
    with torch.random.fork_rng(devices=[ORDINAL], device_type="sim"):
        inner = torch.rand(3, device=DEVICE)
    assert torch.rand(3, device=DEVICE).equal(inner)
    generator = torch.Generator(DEVICE).manual_seed(3)
    clone = generator.clone_state()
    x = torch.randn(3, device=DEVICE, generator=generator)
    assert torch.randn(3, device=DEVICE, generator=clone).equal(x)


def test_sampling_rejects_the_generator_of_another_device():
    with pytest.raises(RuntimeError, match=r"Expected a 'sim:2' generator .* found 'sim:1'"):
        torch.randn(3, device=DEVICE, generator=torch.Generator("sim:1"))


def test_pinned_memory_is_host_memory():
    for batch in DataLoader(torch.arange(4.0), batch_size=2, pin_memory=True):
        assert batch.is_pinned()
        assert not batch.to(DEVICE).is_pinned()
    pageable = torch.empty_like(batch, pin_memory=False)
    assert not pageable.is_pinned()
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty(1, device=DEVICE, pin_memory=True)


@pytest.mark.parametrize("name", MAP_LOCATIONS)
def test_a_saved_tensor_loads_on_map_location(name):
    location, device = MAP_LOCATIONS[name]
    x = torch.arange(12.0, device=DEVICE).reshape(3, 4)[:, 1:]
    loaded = torch.load(saved(x), map_location=location)
    assert (str(loaded.device), loaded.stride(), loaded.tolist()) == (device, (4, 1), x.tolist())


def test_the_device_module_describes_the_devices():
    properties = torch.sim.get_device_properties(3)
    assert torch.sim.get_device_name(3) == properties.name == "Simulated accelerator 3"
    with torch.sim.device(None), torch.sim.device(DEVICE):
        assert torch.sim.current_device() == ORDINAL
        assert str(torch.ones(1).sim().device) == DEVICE
    assert torch.sim.current_device() == 0
    with pytest.raises(ValueError, match="expected a sim device, but got cpu"):
        torch.sim.set_device("cpu")
