"""New tensors: their device while another device is current."""

import itertools

import torch
from torch import accelerator

from spec_tests.checks.nested_values import storage_id
from spec_tests.machine.clauses import clause

#: Functions that create a tensor of ones on a device.
FACTORIES = {
    "ones": lambda device: torch.ones(8, device=device),
    "full": lambda device: torch.full((3, 2), 1.0, device=device),
    "arange": lambda device: torch.arange(1.0, 2.0, device=device),
    "tensor": lambda device: torch.tensor([1.0, 1.0], device=device),
    "empty_strided": lambda device: torch.empty_strided((2, 3), (1, 2), device=device).fill_(1),
    "ones_like": lambda device: torch.ones_like(torch.zeros(2), device=device),
    "to": lambda device: torch.ones(2).to(device),
}
#: Functions that create a tensor of ones from a tensor of six ones, or change its memory.
FROM_TENSORS = {
    "reshape": lambda ones: (ones * 1).reshape(2, 3).contiguous(),
    "reshape of arange": lambda ones: torch.arange(1.0, 2.0, device=ones.device).reshape(1, 1),
    "new_ones": lambda ones: ones.new_ones(3).view(3, 1),
    "out": lambda ones: torch.mul(ones, ones, out=ones.new_empty(0)).view(2, 3),
    "resize_": lambda ones: ones.clone().resize_(12)[:6].view(2, 3),
    "storage": lambda ones: _resize_storage(ones.clone()).fill_(1).view(2, 3),
    "empty resize_": lambda ones: ones.new_empty(0).resize_(4, 2).fill_(1).view(8),
}


def _resize_storage(tensor):
    """Free the memory of ``tensor``, and allocate it again."""
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    storage.resize_(0)
    storage.resize_(size)
    return tensor


@clause("devices.new-tensors.device")
def test_a_factory_function_uses_the_device_of_its_argument(topology):
    for current, device in itertools.product(dict.fromkeys(topology.devices), repeat=2):
        for name, make in FACTORIES.items():
            with accelerator.device_index(current.index):
                _require_ones(make(device), device, f"{name} with {current} current")


@clause("devices.new-tensors.memory")
def test_new_memory_is_on_the_device_of_the_tensor(topology):
    for current, device in itertools.product(dict.fromkeys(topology.devices), repeat=2):
        ones = torch.ones(6, device=device)
        for name, make in FROM_TENSORS.items():
            with accelerator.device_index(current.index):
                _require_ones(make(ones), device, f"{name} with {current} current")


def _require_ones(found, device, call):
    memory = found.untyped_storage().device if storage_id(found) else found.device
    text = f"{call}: a tensor for {device} is on {found.device}, its memory on {memory}"
    assert found.device == device == memory, text
    assert bool(found.cpu().eq(1).all()), f"{call}: a tensor of ones on {device} has other values"
