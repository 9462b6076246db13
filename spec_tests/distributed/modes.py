"""Calls with ``source``, without ``gather_output``, of the function, and with one rank."""

from typing import Any

import torch
from torch import nn

from spec_tests.distributed import probes
from spec_tests.distributed.calls import copy_values
from spec_tests.distributed.pool import Rank


def step_with_source(rank: Rank, source: int, rows: int) -> Any:
    """Return output and gradients of a step on the batch of one rank."""
    net = probes.make_linear()
    wrapped = rank.distributed.DataParallel(net, rank.group, source=source)
    x = make_batch(rows)
    out = wrapped(x * 2) if rank.rank == source else wrapped()
    (out**2).sum().backward()
    return copy_values(out), copy_values(net.weight.grad), copy_values(x.grad)


def send_unpicklable_batch(rank: Rank) -> None:
    """Call a module with a source whose batch cannot be pickled."""
    net = rank.distributed.DataParallel(nn.Identity(), rank.group, source=1)
    net(lambda: None)


def step_without_gather(rank: Rank, rows: int) -> Any:
    """Return loss and gradients of a step with local outputs and the mean of all losses."""
    net = probes.make_linear()
    wrapped = rank.distributed.DataParallel(net, rank.group, gather_output=False)
    x = make_batch(rows)
    out = wrapped(x)
    target = wrapped.part(torch.ones(rows, 2, dtype=torch.float64))
    loss = wrapped.mean(((out - target) ** 2).sum(1))
    loss.backward()
    return out.size(0), copy_values(loss), copy_values(net.weight.grad), copy_values(x.grad)


def step_in_one_process(rows: int) -> Any:
    """Return loss and gradients of the same step in one process."""
    net = probes.make_linear()
    x = make_batch(rows)
    loss = ((net(x) - 1) ** 2).sum(1).mean()
    loss.backward()
    return copy_values(loss), copy_values(net.weight.grad), copy_values(x.grad)


def call_function_twice(rank: Rank, dim: int) -> Any:
    """Return the outputs of two calls of ``data_parallel``, and the gradient of one backward."""
    net = probes.Scale()
    x = make_batch(4)
    first = rank.distributed.data_parallel(net, x, rank.group, dim=dim)
    second = rank.distributed.data_parallel(net, (), rank.group, dim=dim, module_kwargs={"x": x})
    (first**2 + second).sum().backward()
    return copy_values(first), copy_values(second), copy_values(net.weight.grad)


def call_with_one_rank(rank: Rank) -> Any:
    """Return the output of the only rank, which contains values that cannot be pickled."""
    wrapped = rank.distributed.DataParallel(nn.Identity(), rank.group)
    x = make_batch(2)
    out, number, function = wrapped([x, 3, len])
    (out * 2).sum().backward()
    found, _ = wrapped((x.detach(), lambda: None))
    return copy_values(out), number, function is len, copy_values(x.grad), copy_values(found)


def make_batch(rows: int) -> torch.Tensor:
    """Return ``rows`` rows of different numbers, which require a gradient."""
    batch = torch.arange(rows * 2, dtype=torch.float64).view(rows, 2) + 1
    return batch.requires_grad_()
