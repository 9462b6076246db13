"""The current device: set, kept, and separate in each thread."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import torch
from torch import accelerator

from spec_tests.machine.clauses import clause

#: Operators and copies on a tensor, by name. The second argument is another device.
OPERATORS = {
    "zeros": lambda x, _: torch.zeros(2, device=x.device),
    "mul": lambda x, _: x * 2,
    "add_": lambda x, _: x.detach().clone().add_(1),
    "sum": lambda x, _: x.sum().item(),
    "cpu": lambda x, _: x.cpu(),
    "to": lambda x, other: x.to(other),
    "copy_": lambda x, other: torch.zeros(2, device=other).copy_(x.detach()),
    "backward": lambda x, _: (x * x).sum().backward(),
}


@clause("devices.current-device.set")
def test_each_device_becomes_current(topology):
    before = accelerator.current_device_index()
    try:
        for device in topology.devices:
            accelerator.set_device_index(device.index)
            found = accelerator.current_device_index()
            assert found == device.index, f"after set_device_index({device.index}): {found}"
    finally:
        accelerator.set_device_index(before)


@clause("devices.current-device.kept-by-operators")
def test_operators_keep_the_current_device(topology):
    devices = dict.fromkeys(topology.take(2))
    for current, device, other in itertools.product(devices, repeat=3):
        x = torch.ones(2, device=device, requires_grad=True)
        for name, operator in OPERATORS.items():
            with accelerator.device_index(current.index):
                operator(x, other)
                found = accelerator.current_device_index()
            assert found == current.index, f"{name} on {device} makes {found} current"


@clause("devices.current-device.kept-by-blocks")
def test_an_error_in_a_block_restores_the_current_device(topology):
    before = accelerator.current_device_index()
    for device in topology.devices:
        with suppress(ZeroDivisionError), accelerator.device_index(device.index):
            1 / 0  # noqa: B018
        found = accelerator.current_device_index()
        assert found == before, f"after a block with {device}, device {found} is current"


@clause("devices.current-device.per-thread")
def test_each_thread_has_its_own_current_device(topology):
    topology.require(distinct=2)
    last = max(topology.ordinals)
    with accelerator.device_index(last), ThreadPoolExecutor(1) as thread:
        found = thread.submit(accelerator.current_device_index).result()
        assert found == 0, f"a new thread begins on device {found}"
        thread.submit(accelerator.set_device_index, 0).result()
        found = accelerator.current_device_index()
        assert found == last, f"another thread makes device {found} current"
