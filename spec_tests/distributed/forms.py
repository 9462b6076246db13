"""Other forms of a call over processes, each a function that a rank runs."""

from typing import Any

import torch
from torch import nn

from spec_tests.distributed import probes
from spec_tests.distributed.calls import plain
from spec_tests.distributed.pool import Rank


def from_source(rank: Rank, source: int, rows: int) -> Any:
    """One step on a batch that one rank has."""
    net = probes.linear()
    wrapped = rank.distributed.DataParallel(net, rank.group, source=source)
    x = batch(rows)
    out = wrapped(x * 2) if rank.rank == source else wrapped()
    (out**2).sum().backward()
    return plain(out), plain(net.weight.grad), plain(x.grad)


def unsendable_source(rank: Rank) -> None:
    """A batch that cannot be sent."""
    net = rank.distributed.DataParallel(nn.Identity(), rank.group, source=1)
    net(lambda: None)


def own_part(rank: Rank, rows: int) -> Any:
    """A step in which each rank has its own outputs and a mean of all losses."""
    net = probes.linear()
    wrapped = rank.distributed.DataParallel(net, rank.group, gather_output=False)
    x = batch(rows)
    out = wrapped(x)
    target = wrapped.part(torch.ones(rows, 2, dtype=torch.float64))
    loss = wrapped.mean(((out - target) ** 2).sum(1))
    loss.backward()
    return out.size(0), plain(loss), plain(net.weight.grad), plain(x.grad)


def whole(rows: int) -> Any:
    """The same step without processes."""
    net = probes.linear()
    x = batch(rows)
    loss = ((net(x) - 1) ** 2).sum(1).mean()
    loss.backward()
    return plain(loss), plain(net.weight.grad), plain(x.grad)


def functional(rank: Rank, dim: int) -> Any:
    """Two calls of the function, one backward."""
    net = probes.Columns()
    x = batch(4)
    one = rank.distributed.data_parallel(net, x, rank.group, dim=dim)
    two = rank.distributed.data_parallel(net, (), rank.group, dim=dim, module_kwargs={"x": x})
    (one**2 + two).sum().backward()
    return plain(one), plain(two), plain(net.weight.grad)


def alone(rank: Rank) -> Any:
    """The output of the only rank, which holds what cannot be sent."""
    wrapped = rank.distributed.DataParallel(nn.Identity(), rank.group)
    x = batch(2)
    out, number, function = wrapped([x, 3, len])
    (out * 2).sum().backward()
    found, _ = wrapped((x.detach(), lambda: None))
    return plain(out), number, function is len, plain(x.grad), plain(found)


def batch(rows: int) -> torch.Tensor:
    """Rows that require gradients."""
    made = torch.arange(rows * 2, dtype=torch.float64).view(rows, 2) + 1
    return made.requires_grad_()
