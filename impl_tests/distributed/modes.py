"""Calls in other modes than the default.

The modes are ``source=``, ``gather_output=False``, the function ``data_parallel`` and one rank.
"""

from typing import Any

import torch
from torch import nn

from impl import distributed
from impl_tests.distributed import probes
from impl_tests.distributed.calls import copy_to_cpu
from impl_tests.distributed.pool import RankContext


def step_with_source(context: RankContext, source: int, rows: int) -> Any:
    """Train one step on the batch of rank ``source``; return output and gradients."""
    net = probes.make_linear()
    wrapped = distributed.DataParallel(net, context.group, source=source)
    x = make_batch(rows)
    out = wrapped(x * 2) if context.rank == source else wrapped()
    (out**2).sum().backward()
    return copy_to_cpu(out), copy_to_cpu(net.weight.grad), copy_to_cpu(x.grad)


def send_unpicklable_batch(context: RankContext) -> None:
    """Call DataParallel with ``source=1`` and a batch on rank 1 that cannot be pickled."""
    net = distributed.DataParallel(nn.Identity(), context.group, source=1)
    net(lambda: None)


def step_without_gather(context: RankContext, rows: int, **options: Any) -> Any:
    """Train one step with ``gather_output=False``; return local rows, mean loss and gradients."""
    net = probes.make_linear()
    wrapped = distributed.DataParallel(net, context.group, gather_output=False, **options)
    x = make_batch(rows)
    out = wrapped(x)
    target = wrapped.part(torch.ones(rows, 2, dtype=torch.float64))
    loss = wrapped.mean(((out - target) ** 2).sum(1))
    torch.autograd.backward(loss)
    return out.size(0), copy_to_cpu(loss), copy_to_cpu(net.weight.grad), copy_to_cpu(x.grad)


def step_in_one_process(rows: int) -> Any:
    """Run the step of `step_without_gather` in one process; return loss and gradients."""
    net = probes.make_linear()
    x = make_batch(rows)
    loss = ((net(x) - 1) ** 2).sum(1).mean()
    loss.backward()
    return copy_to_cpu(loss), copy_to_cpu(net.weight.grad), copy_to_cpu(x.grad)


def call_function_twice(context: RankContext, dim: int) -> Any:
    """Call ``data_parallel`` once with a positional and once with a keyword input.

    Return both results and the weight's gradient.
    """
    net = probes.ScaleByRows()
    x = make_batch(4)
    first = distributed.data_parallel(net, x, context.group, dim=dim)
    second = distributed.data_parallel(net, (), context.group, dim=dim, module_kwargs={"x": x})
    (first**2 + second).sum().backward()
    return copy_to_cpu(first), copy_to_cpu(second), copy_to_cpu(net.weight.grad)


def call_with_one_rank(context: RankContext) -> Any:
    """Return results of calls on the only rank, and a gradient. One input cannot be pickled."""
    wrapped = distributed.DataParallel(nn.Identity(), context.group)
    x = make_batch(2)
    out, number, function = wrapped([x, 3, len])
    (out * 2).sum().backward()
    found, _ = wrapped((x.detach(), lambda: None))
    return copy_to_cpu(out), number, function is len, copy_to_cpu(x.grad), copy_to_cpu(found)


def make_batch(rows: int) -> torch.Tensor:
    """Return a batch of ``rows`` rows with different numbers. The batch requires a gradient."""
    batch = torch.arange(rows * 2, dtype=torch.float64).view(rows, 2) + 1
    return batch.requires_grad_()
