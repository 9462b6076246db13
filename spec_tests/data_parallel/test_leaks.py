"""DataParallel: lifetimes of modules and tensors."""

import weakref

import torch
from torch import nn

from spec_tests.checks.leaks import check_freed, disable_gc
from spec_tests.machine.clauses import clause


def forward_and_backward(target, topology):
    devices = topology.take(3)
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(devices[0])
    wrapped = target.data_parallel.DataParallel(module, devices)
    x = torch.arange(12.0).to(devices[0]).reshape(6, 2).requires_grad_()
    output = wrapped(x)
    output.square().sum().backward()
    tensors = [*module.parameters(), *module.buffers(), x, output]
    return [weakref.ref(item) for item in (wrapped, module, *tensors)]


@clause("data_parallel.leftovers")
def test_a_call_leaves_no_references_to_its_tensors(target, topology):
    """PyTorch 0.3 (#4865): recursive closures were reference cycles that kept the batch."""
    with disable_gc():
        references = forward_and_backward(target, topology)
        check_freed(references)
