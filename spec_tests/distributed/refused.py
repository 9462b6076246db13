"""What is refused over processes, and what is not, each a function that a rank runs."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from spec_tests.distributed import probes
from spec_tests.distributed.calls import plain
from spec_tests.distributed.pool import Rank


def twice_differentiated(rank: Rank) -> None:
    """A gradient penalty."""
    net = rank.distributed.DataParallel(probes.linear(), rank.group)
    x = probes.numbered(rank.size).requires_grad_()
    torch.autograd.grad(net(x).sum(), x, create_graph=True)


def singled_out(rank: Rank, way: str) -> None:
    """Gradients of some parameters only."""
    net = rank.distributed.DataParallel(probes.linear(), rank.group)
    loss = net(probes.numbered(rank.size)).sum()
    parameters = list(net.parameters())[:1]
    if way == "grad":
        torch.autograd.grad(loss, parameters)
    else:
        loss.backward(inputs=parameters)


def of_arguments(rank: Rank, way: str) -> Any:
    """Gradients of arguments only."""
    net = rank.distributed.DataParallel(probes.linear(), rank.group)
    x = probes.numbered(rank.size).requires_grad_()
    loss = (net(x) ** 2).sum()
    if way == "grad":
        (found,) = torch.autograd.grad(loss, x)
        return plain(found)
    loss.backward(inputs=[x])
    return plain(x.grad)


def unlike(rank: Rank, odd: int, how: str) -> None:
    """A module that is another on one rank."""
    odd_ones = {
        "weight is (3, 2)": nn.Linear(2, 3, bias=False),
        "weight is (2, 2) of torch.float64": nn.Linear(2, 2, bias=False).double(),
        "bias is ": nn.Linear(2, 2),
    }
    net = odd_ones[how] if rank.rank == odd else nn.Linear(2, 2, bias=False)
    rank.distributed.DataParallel(net, rank.group)


def sparse(rank: Rank, kind: type[nn.Module]) -> None:
    """A module with sparse gradients inside of another."""
    net = nn.Sequential(kind(4, 2, sparse=True))
    rank.distributed.DataParallel(net, rank.group)


def of_rank_zero(rank: Rank) -> Any:
    """Parameters and buffers that differ between ranks before."""
    net = nn.BatchNorm1d(2)
    net.weight.data.fill_(rank.rank + 1)
    for buffer in net.buffers():
        buffer.fill_(rank.rank + 1)
    rank.distributed.DataParallel(net, rank.group)
    return plain(net.weight), plain(net.running_mean)


def without_group(rank: Rank) -> None:
    """A module where there is no process group any more."""
    dist.destroy_process_group()
    rank.distributed.DataParallel(nn.Linear(2, 2))


def outsider(rank: Rank) -> None:
    """A module in a group that the last rank is not in."""
    group = dist.new_group(list(range(rank.size - 1)))
    if rank.rank == rank.size - 1:
        rank.distributed.DataParallel(nn.Linear(2, 2), group)


def with_options(rank: Rank, **options: Any) -> None:
    """A module with wrong options."""
    rank.distributed.DataParallel(nn.Linear(2, 2), rank.group, **options)


def differing(rank: Rank, odd: int, how: str) -> None:
    """Arguments that differ on one rank."""
    x = probes.numbered(4)
    if rank.rank == odd:
        x = {"shape": x[:, :1], "dtype": x.float(), "elements": x.flip(0)}[how]
    net = rank.distributed.DataParallel(nn.Identity(), rank.group, check_inputs=True)
    net(x)


def alike(rank: Rank) -> Any:
    """Arguments that are the same everywhere, compared."""
    net = rank.distributed.DataParallel(nn.Identity(), rank.group, check_inputs=True)
    return plain(net(probes.numbered(2)))


def failing(rank: Rank, action: Any, whose: tuple[int, ...]) -> None:
    """A call in which some ranks raise."""
    net = rank.distributed.DataParallel(probes.Acting(action, whose), rank.group)
    net(probes.numbered(rank.size))


def failing_then_not(rank: Rank) -> Any:
    """A step after a call in which a rank has raised."""
    acting = probes.Acting(probes.raise_key_error, (1,))
    net = rank.distributed.DataParallel(acting, rank.group)
    try:
        net(probes.numbered(rank.size))
    except KeyError:
        acting.whose = ()
    net(probes.numbered(rank.size)).sum().backward()
    return plain(acting.layer.weight.grad)


def unsendable(rank: Rank) -> None:
    """A module whose output cannot be pickled."""
    net = rank.distributed.DataParallel(nn.Identity(), rank.group)
    net([probes.numbered(rank.size), lambda: None])


def dying(rank: Rank, whose: int, in_backward: bool) -> None:
    """A step in which a process ends."""
    acting = probes.Acting(probes.die, (whose,), in_backward)
    net = rank.distributed.DataParallel(acting, rank.group)
    net(probes.numbered(rank.size)).sum().backward()


def silent(rank: Rank, whose: int) -> None:
    """A step in which a process ends before it, and one after that."""
    net = rank.distributed.DataParallel(probes.linear(), rank.group)
    if rank.rank == whose:
        probes.die(whose)
    for _ in range(2):
        try:
            net(probes.numbered(rank.size))
        except RuntimeError as error:
            found = error
    raise found
