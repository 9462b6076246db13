"""Backward passes: on one device, over several, on side streams and in threads."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import accelerator, nn

from spec_tests.checks.side_streams import DELAY, late_copies
from spec_tests.machine.clauses import clause
from spec_tests.machine.devices import queue_work


@clause("devices.backward.values")
def test_gradients_are_those_of_the_cpu(topology):
    expected = _gradient(torch.device("cpu"))
    for device in topology.devices:
        found = _gradient(device)
        assert torch.allclose(found, expected), f"{device}: the gradient is {found.tolist()}"


@clause("devices.backward.over-devices")
def test_the_gradients_of_copies_on_all_devices_add_up(topology):
    x = torch.ones(2, device=topology.device(0), requires_grad=True)
    copies = [(x.to(device) * 2).to(x.device) for device in topology.devices]
    torch.stack(copies).sum().backward()
    found, expected = x.grad.tolist(), [2.0 * len(copies)] * 2
    assert found == expected, f"the gradient is {found}, not {expected}"


@clause("devices.backward.threads")
def test_threads_compute_gradients_at_the_same_time(topology):
    expected = _gradient(torch.device("cpu"))
    with ThreadPoolExecutor(len(topology.devices)) as threads:
        for found in threads.map(_gradient_with_current_device, topology.devices):
            assert torch.allclose(found, expected), f"the gradient is {found.tolist()}"


@clause("devices.backward.streams")
def test_backward_runs_on_the_streams_of_forward(topology):
    device = topology.device(0)
    current = accelerator.current_stream(device.index)
    with late_copies(topology):
        x = torch.ones(2, device=device, requires_grad=True)
        side = torch.Stream(device)
        side.wait_stream(current)
        with side:
            queue_work(device, DELAY)
            factor = torch.full((2,), 3.0, device=device)
            (x * factor).sum().backward()
        current.wait_stream(side)
        found = x.grad.tolist()
    assert found == [3, 3], f"the gradient is {found}"


def _gradient_with_current_device(device):
    with accelerator.device_index(device.index):
        return _gradient(device)


def _gradient(device):
    """Return a gradient that the device computes, on the CPU."""
    generator = torch.Generator().manual_seed(0)
    module, batch = nn.Linear(3, 2), torch.arange(6.0).reshape(2, 3)
    with torch.no_grad():
        module.weight.copy_(torch.rand(2, 3, generator=generator))
        module.bias.zero_()
    module = module.to(device)
    module(batch.to(device)).square().sum().backward()
    assert module.weight.grad is not None, "backward computes no gradient"
    return module.weight.grad.cpu()
