"""Calls that are refused or fail on some rank, and similar calls that succeed."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from spec_tests.distributed import probes
from spec_tests.distributed.calls import copy_values
from spec_tests.distributed.pool import Rank


def differentiate_twice(rank: Rank) -> None:
    """Run backward with ``create_graph=True``."""
    net = rank.distributed.DataParallel(probes.make_linear(), rank.group)
    x = probes.rank_rows(rank.size).requires_grad_()
    torch.autograd.grad(net(x).sum(), x, create_graph=True)


def differentiate_some_parameters(rank: Rank, api: str) -> None:
    """Compute gradients of some parameters only."""
    net = rank.distributed.DataParallel(probes.make_linear(), rank.group)
    loss = net(probes.rank_rows(rank.size)).sum()
    parameters = list(net.parameters())[:1]
    if api == "autograd.grad":
        torch.autograd.grad(loss, parameters)
    else:
        loss.backward(inputs=parameters)


def differentiate_inputs(rank: Rank, api: str) -> Any:
    """Return gradients of inputs only."""
    net = rank.distributed.DataParallel(probes.make_linear(), rank.group)
    x = probes.rank_rows(rank.size).requires_grad_()
    loss = (net(x) ** 2).sum()
    if api == "autograd.grad":
        (grad,) = torch.autograd.grad(loss, x)
        return copy_values(grad)
    loss.backward(inputs=[x])
    return copy_values(x.grad)


def wrap_different_module(rank: Rank, different_rank: int, difference: str) -> None:
    """Wrap a module that differs on rank ``different_rank``."""
    different = {
        "weight is (3, 2)": nn.Linear(2, 3, bias=False),
        "weight is (2, 2) of torch.float64": nn.Linear(2, 2, bias=False).double(),
        "bias is ": nn.Linear(2, 2),
    }
    net = different[difference] if rank.rank == different_rank else nn.Linear(2, 2, bias=False)
    rank.distributed.DataParallel(net, rank.group)


def wrap_sparse_module(rank: Rank, kind: type[nn.Module]) -> None:
    """Wrap a module whose submodule has sparse gradients."""
    net = nn.Sequential(kind(4, 2, sparse=True))
    rank.distributed.DataParallel(net, rank.group)


def wrap_different_values(rank: Rank) -> Any:
    """Return a parameter and a buffer that differed between ranks before."""
    net = nn.BatchNorm1d(2)
    net.weight.data.fill_(rank.rank + 1)
    for buffer in net.buffers():
        buffer.fill_(rank.rank + 1)
    rank.distributed.DataParallel(net, rank.group)
    return copy_values(net.weight), copy_values(net.running_mean)


def wrap_without_group(rank: Rank) -> None:
    """Wrap a module after the process group is destroyed."""
    dist.destroy_process_group()
    rank.distributed.DataParallel(nn.Linear(2, 2))


def wrap_outside_group(rank: Rank) -> None:
    """Wrap a module on the last rank, in a group of all others."""
    group = dist.new_group(list(range(rank.size - 1)))
    if rank.rank == rank.size - 1:
        rank.distributed.DataParallel(nn.Linear(2, 2), group)


def wrap_with_options(rank: Rank, **options: Any) -> None:
    """Wrap a module with ``options``."""
    rank.distributed.DataParallel(nn.Linear(2, 2), rank.group, **options)


def call_with_different_inputs(rank: Rank, different_rank: int, difference: str) -> None:
    """Call a module with inputs that differ on rank ``different_rank``."""
    x = probes.rank_rows(4)
    if rank.rank == different_rank:
        x = {"shape": x[:, :1], "dtype": x.float(), "elements": x.flip(0)}[difference]
    net = rank.distributed.DataParallel(nn.Identity(), rank.group, check_inputs=True)
    net(x)


def call_with_equal_inputs(rank: Rank) -> Any:
    """Return the output for checked inputs that are equal on all ranks."""
    net = rank.distributed.DataParallel(nn.Identity(), rank.group, check_inputs=True)
    return copy_values(net(probes.rank_rows(2)))


def raise_on_ranks(rank: Rank, action: Any, ranks: tuple[int, ...]) -> None:
    """Call a module that raises on ``ranks``."""
    net = rank.distributed.DataParallel(probes.ActOnRanks(action, ranks), rank.group)
    net(probes.rank_rows(rank.size))


def step_after_error(rank: Rank) -> Any:
    """Return a gradient of the step after a call that failed on rank 1."""
    module = probes.ActOnRanks(probes.raise_key_error, (1,))
    net = rank.distributed.DataParallel(module, rank.group)
    try:
        net(probes.rank_rows(rank.size))
    except KeyError:
        module.ranks = ()
    net(probes.rank_rows(rank.size)).sum().backward()
    return copy_values(module.layer.weight.grad)


def return_unpicklable(rank: Rank) -> None:
    """Call a module whose output cannot be pickled."""
    net = rank.distributed.DataParallel(nn.Identity(), rank.group)
    net([probes.rank_rows(rank.size), lambda: None])


def kill_in_step(rank: Rank, killed: int, in_backward: bool) -> None:
    """Run a step that kills the process of one rank."""
    module = probes.ActOnRanks(probes.kill_process, (killed,), in_backward)
    net = rank.distributed.DataParallel(module, rank.group)
    net(probes.rank_rows(rank.size)).sum().backward()


def call_twice_after_kill(rank: Rank, killed: int) -> None:
    """Kill the process of one rank, call twice on the others, and raise the second error."""
    net = rank.distributed.DataParallel(probes.make_linear(), rank.group)
    if rank.rank == killed:
        probes.kill_process(killed)
    for _ in range(2):
        try:
            net(probes.rank_rows(rank.size))
        except RuntimeError as error:
            last = error
    raise last
