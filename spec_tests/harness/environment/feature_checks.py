"""Checks of the features of a back end that DataParallel can do without.

A check raises ``WrongResultError`` if a result is wrong. Any other exception of a check means that
the back end lacks the feature.
"""

import torch
from torch import nn

from spec_tests.harness.environment.back_end_checks import Devices, device_module, require
from spec_tests.harness.environment.queued_work import queue_work

__all__ = [
    "SYNCHRONOUS",
    "check_addresses",
    "check_asynchronous_operators",
    "check_autocast",
    "check_channels_last",
    "check_distinct_streams",
    "check_empty_batches",
    "check_events",
    "check_generators",
    "check_kept_parameters",
    "check_new_streams",
    "check_pinned_memory",
    "check_record_stream",
    "check_seeds",
    "check_sparse",
]


#: The text about devices on which a test of the order of work always passes.
SYNCHRONOUS = "operators are synchronous: no test shows the order of work"


def check_new_streams(devices: Devices) -> None:
    """Create a stream and make it current."""
    stream = torch.Stream(devices[0])
    before = torch.accelerator.current_stream(devices[0].index)
    torch.accelerator.set_stream(stream)
    torch.accelerator.set_stream(before)


def check_distinct_streams(devices: Devices) -> None:
    """Create a stream that differs from the current one."""
    new, current = torch.Stream(devices[0]), torch.accelerator.current_stream(devices[0].index)
    require(new != current, "torch.Stream(device) returns the current stream")


def check_asynchronous_operators(devices: Devices) -> None:
    """Read a value before a side stream has written it: the read must be too early once in three.

    On the simulator the race detector finds such reads.
    """
    if devices[0].type != "sim":
        require(any(_reads_too_early(devices[0]) for _ in range(3)), SYNCHRONOUS)


def _reads_too_early(device: torch.device) -> bool:
    written = torch.zeros(1, device=device)
    torch.accelerator.synchronize(device)
    with torch.Stream(device):
        queue_work(device, 50)
        written.fill_(1)
    is_early = (written * 1).item() == 0
    torch.accelerator.synchronize(device)
    return is_early


def check_events(devices: Devices) -> None:
    """Record an event, wait for it on the host, and query it."""
    event = torch.Event(devices[0])
    event.record(torch.accelerator.current_stream(devices[0].index))
    event.synchronize()
    require(event.query(), "query() is False after synchronize()")


def check_record_stream(devices: Devices) -> None:
    """Try ``Tensor.record_stream``."""
    tensor = torch.ones(1, device=devices[0])
    tensor.record_stream(torch.accelerator.current_stream(devices[0].index))


def check_addresses(devices: Devices) -> None:
    """Compare the addresses of a tensor, of a view of it, and of another tensor."""
    tensor, other = torch.ones(2, device=devices[0]), torch.ones(2, device=devices[0])
    require(tensor[1:].data_ptr() == tensor.data_ptr() + 4, "a view is not behind its tensor")
    require(len({0, tensor.data_ptr(), other.data_ptr()}) == 3, "two tensors have one address")


def check_seeds(devices: Devices) -> None:
    """Seed all devices twice, and compare the numbers that they draw."""
    draws = []
    for _ in range(2):
        torch.manual_seed(3)
        device_module(devices).manual_seed_all(3)
        draws.append([torch.rand(2, device=device).tolist() for device in devices])
    require(draws[0] == draws[1], "one seed gives different numbers")


def check_generators(devices: Devices) -> None:
    """Draw from two generators with one seed."""
    draws = []
    for _ in range(2):
        generator = torch.Generator(devices[0]).manual_seed(3)
        draws.append(torch.rand(2, device=devices[0], generator=generator).tolist())
    require(draws[0] == draws[1], "one seed gives different numbers")


def check_autocast(devices: Devices) -> None:
    """Multiply matrices under autocast to bfloat16."""
    matrix = torch.ones(2, 2, device=devices[0])
    with torch.autocast(devices[0].type, dtype=torch.bfloat16):
        dtype = (matrix @ matrix).dtype
    require(dtype == torch.bfloat16, f"a product under autocast is {dtype}")


def check_pinned_memory(devices: Devices) -> None:
    """Pin a tensor."""
    require(torch.ones(1).pin_memory().is_pinned(), "is_pinned() is False")


def check_sparse(devices: Devices) -> None:
    """Convert a matrix to the sparse layout and back."""
    dense = torch.eye(2, device=devices[0])
    require(torch.equal(dense.to_sparse().to_dense().cpu(), torch.eye(2)), "other values")


def check_channels_last(devices: Devices) -> None:
    """Convolve an image with a weight in the memory format channels-last."""
    image, weight = torch.ones(1, 2, 3, 3), torch.ones(2, 2, 3, 3)
    moved = weight.to(memory_format=torch.channels_last).to(devices[0])
    found = nn.functional.conv2d(image.to(devices[0]), moved)
    require(torch.equal(found.cpu(), nn.functional.conv2d(image, weight)), "other values")


def check_empty_batches(devices: Devices) -> None:
    """Train a linear layer on a batch without rows, and concatenate such batches."""
    layer = nn.Linear(4, 4).to(devices[0])
    rows = torch.zeros(0, 4, device=devices[0])
    for size in (4, 16):
        torch.full((size,), 7.0, device=devices[0])  # Freed at once, so this memory is used again.
    nn.Sequential(layer, layer, layer)(rows).sum().backward()
    gradients = [parameter.grad.cpu() for parameter in layer.parameters()]  # type: ignore[union-attr]
    require(not any(map(torch.any, gradients)), "the gradients of no rows are not zero")
    require((rows @ torch.ones(4, 4, device=devices[0])).shape == (0, 4), "another shape")
    require(torch.cat([rows[:, 0], rows[:, 0]], -1).shape == (0,), "another shape")


def check_kept_parameters(devices: Devices) -> None:
    """Move a module to a device; its parameters must stay the same objects."""
    module = nn.Linear(1, 1)
    before = module.weight
    require(module.to(devices[0]).weight is before, "module.to() creates new parameters")
