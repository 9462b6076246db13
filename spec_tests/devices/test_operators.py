"""Operators that DataParallel's users need, and that back ends compute wrong."""

import torch
from torch import nn

from spec_tests.machine.clauses import clause


@clause("devices.operators.autocast")
def test_autocast_multiplies_in_the_lower_precision(topology):
    matrix = torch.ones(2, 2, device=topology.device(0))
    with torch.autocast(topology.accelerator, dtype=torch.bfloat16):
        dtype = (matrix @ matrix).dtype
    assert dtype == torch.bfloat16, f"a product under autocast is {dtype}"
    assert (matrix @ matrix).dtype == torch.float32, "autocast is on after its block"


@clause("devices.operators.sparse")
def test_a_matrix_becomes_sparse_and_dense_again(topology):
    dense = torch.eye(2, device=topology.device(0))
    assert torch.equal(dense.to_sparse().to_dense().cpu(), torch.eye(2)), "other values"


@clause("devices.operators.channels-last")
def test_a_convolution_reads_a_channels_last_weight(topology):
    image, weight = torch.arange(18.0).view(1, 2, 3, 3), torch.arange(36.0).view(2, 2, 3, 3)
    moved = weight.to(memory_format=torch.channels_last).to(topology.device(0))
    found = nn.functional.conv2d(image.to(topology.device(0)), moved)
    assert torch.equal(found.cpu(), nn.functional.conv2d(image, weight)), "other values"


@clause("devices.operators.empty-batches")
def test_a_batch_without_rows_has_zero_gradients(topology):
    device = topology.device(0)
    layer = nn.Linear(4, 4).to(device)
    rows = torch.zeros(0, 4, device=device)
    for size in (4, 16):
        torch.full((size,), 7.0, device=device)  # Freed at once, so this memory is used again.
    nn.Sequential(layer, layer, layer)(rows).sum().backward()
    gradients = [parameter.grad.cpu() for parameter in layer.parameters()]
    assert not any(map(torch.any, gradients)), "the gradients of no rows are not zero"
    assert (rows @ torch.ones(4, 4, device=device)).shape == (0, 4), "another shape"
    assert torch.cat([rows[:, 0], rows[:, 0]], -1).shape == (0,), "another shape"


@clause("devices.modules.kept-parameters")
def test_a_moved_module_keeps_its_parameters(topology):
    module = nn.Linear(1, 1)
    before = module.weight
    if module.to(topology.device(0)).weight is not before:
        raise NotImplementedError("module.to() creates new parameters")
