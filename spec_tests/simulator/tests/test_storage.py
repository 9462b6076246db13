"""Saving, loading, pickling, copying and moving tensors and modules."""

import copy
import io
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.multiprocessing
from torch import nn
from torch.nn.utils.rnn import pack_sequence

pytestmark = pytest.mark.usefixtures("sim")

DEVICE = "sim:2"
MAP_LOCATIONS = {
    "as saved": (None, DEVICE),
    "cpu": ("cpu", "cpu"),
    "another device": ("sim:1", "sim:1"),
    "torch.device": (torch.device, "sim:3"),
    "current device": ("sim", "sim:0"),
    "renamed": ({"sim:2": "sim:3"}, "sim:3"),
    "function": (lambda storage, _: storage, "cpu"),
}


def save_to_buffer(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


def sliced_tensor():
    return torch.arange(12.0, device=DEVICE).reshape(3, 4)[:, 1:]


@pytest.mark.parametrize("name", MAP_LOCATIONS)
def test_saved_tensor_loads_on_map_location(name):
    location, device = MAP_LOCATIONS[name]
    location = torch.device("sim:3") if location is torch.device else location
    loaded = torch.load(save_to_buffer({"x": sliced_tensor()}), map_location=location)["x"]
    assert str(loaded.device) == device
    assert loaded.stride() == (4, 1)
    assert loaded.tolist() == sliced_tensor().tolist()


def test_loading_onto_an_invalid_ordinal_raises():
    with pytest.raises(RuntimeError, match="7"):
        torch.load(save_to_buffer(torch.ones(2)), map_location="sim:7")


def test_tensors_saved_together_share_memory_after_loading():
    x = torch.zeros(4, device=DEVICE)
    first, second = torch.load(save_to_buffer([x[:2], x[1:]]))
    first.fill_(1)
    assert second.tolist() == [1, 0, 0]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copied_tensor_stays_on_the_device_and_shares_no_memory(duplicate):
    x = sliced_tensor()
    y = duplicate(x)
    assert y.device == x.device
    assert y.stride() == x.stride()
    x.zero_()
    assert y.sum().item() == 54


@pytest.mark.parametrize(
    "duplicate",
    [
        copy.deepcopy,
        lambda net: pickle.loads(pickle.dumps(net)),
        lambda net: torch.load(save_to_buffer(net), weights_only=False),
    ],
)
def test_copied_module_stays_on_the_device(duplicate):
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to(DEVICE)
    copied = duplicate(net)
    assert {str(value.device) for value in copied.state_dict().values()} == {DEVICE}
    assert all(x.equal(y) for x, y in zip(net.parameters(), copied.parameters(), strict=True))
    assert next(net.parameters()) is not next(copied.parameters())


MOVES = {
    "to": lambda net: net.to(DEVICE),
    "method": lambda net: net.sim(1),
    "method of the current device": lambda net: net.sim(),
    "between devices": lambda net: net.to("sim:1").to("sim:3"),
    "back to the CPU": lambda net: net.to(DEVICE).cpu(),
    "other dtype": lambda net: net.to(DEVICE, torch.float64),
    "to_empty": lambda net: net.to_empty(device=DEVICE),
}


@pytest.mark.parametrize("move", MOVES)
def test_moving_a_module_keeps_its_parameters_and_moves_gradients(move):
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    net(torch.randn(4, 3)).sum().backward()
    before = list(net.parameters())
    assert MOVES[move](net) is net
    assert all(x is y for x, y in zip(before, net.parameters(), strict=True))
    assert len({str(x.device) for x in net.state_dict().values()}) == 1
    assert all(x.grad.device == x.device and x.grad.dtype == x.dtype for x in before)
    inputs = torch.randn(4, 3).to(before[0].device, before[0].dtype)
    net(inputs).sum().backward()


def test_modules_are_created_on_a_device():
    with torch.device(DEVICE):
        net = nn.Linear(2, 2)
    assert str(net.weight.device) == DEVICE
    assert str(nn.Linear(2, 2, device="sim:1").weight.device) == "sim:1"
    lazy = nn.LazyLinear(3).to(DEVICE)
    assert lazy(torch.ones(1, 2, device=DEVICE)).shape == (1, 3)


def test_packed_sequences_can_be_moved_to_a_device():
    packed = pack_sequence([torch.ones(3, 2), torch.ones(2, 2)])
    moved = packed.to(DEVICE)
    assert moved.is_sim
    assert str(moved.data.device) == DEVICE
    assert moved.batch_sizes.device.type == "cpu"
    assert packed.sim(1).data.device.index == 1


def test_storage_has_a_device_and_can_be_moved():
    storage = sliced_tensor().untyped_storage()
    assert storage.is_sim
    assert str(storage.device) == DEVICE
    assert torch.UntypedStorage(8, device=DEVICE).nbytes() == 8
    assert str(storage.sim(1).device) == "sim:1"
    assert bytes(storage.cpu()) == bytes(storage.sim(1).cpu())


def test_sharing_with_other_processes_raises():
    with pytest.raises(RuntimeError, match="only available on CPU"):
        ForkingPickler.dumps(sliced_tensor())
