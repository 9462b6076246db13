"""Calls that raise an error on some rank, and similar calls that succeed."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from impl import distributed
from impl_tests.distributed import probes
from impl_tests.distributed.calls import copy_to_cpu
from impl_tests.distributed.pool import RankContext


def differentiate_twice(context: RankContext) -> None:
    """Run backward with ``create_graph=True``."""
    net = distributed.DataParallel(probes.make_linear(), context.group)
    x = probes.make_rank_rows(context.size).requires_grad_()
    torch.autograd.grad(net(x).sum(), x, create_graph=True)


def differentiate_some_parameters(context: RankContext, api: str) -> None:
    """Compute the gradient of one parameter only, with the function ``api``."""
    net = distributed.DataParallel(probes.make_linear(), context.group)
    loss = net(probes.make_rank_rows(context.size)).sum()
    parameters = list(net.parameters())[:1]
    if api == "autograd.grad":
        torch.autograd.grad(loss, parameters)
    else:
        loss.backward(inputs=parameters)


def differentiate_inputs(context: RankContext, api: str) -> Any:
    """Return the gradient of the input only, computed with the function ``api``."""
    net = distributed.DataParallel(probes.make_linear(), context.group)
    x = probes.make_rank_rows(context.size).requires_grad_()
    loss = (net(x) ** 2).sum()
    if api == "autograd.grad":
        (grad,) = torch.autograd.grad(loss, x)
        return copy_to_cpu(grad)
    loss.backward(inputs=[x])
    return copy_to_cpu(x.grad)


def wrap_different_module(context: RankContext, different_rank: int, difference: str) -> None:
    """Wrap a module that differs on one rank; ``difference`` is the text in the error."""
    different = {
        "weight is (3, 2)": nn.Linear(2, 3, bias=False),
        "weight is (2, 2) of torch.float64": nn.Linear(2, 2, bias=False).double(),
        "bias is ": nn.Linear(2, 2),
    }
    net = different[difference] if context.rank == different_rank else nn.Linear(2, 2, bias=False)
    distributed.DataParallel(net, context.group)


def wrap_sparse_module(context: RankContext, layer_class: type[nn.Module]) -> None:
    """Wrap a module whose submodule has sparse gradients."""
    net = nn.Sequential(layer_class(4, 2, sparse=True))
    distributed.DataParallel(net, context.group)


def wrap_different_values(context: RankContext, is_frozen: bool) -> Any:
    """Wrap a module whose values differ between ranks; return a parameter and a buffer."""
    net = nn.BatchNorm1d(2).requires_grad_(not is_frozen)
    net.weight.data.fill_(context.rank + 1)
    for buffer in net.buffers():
        buffer.fill_(context.rank + 1)
    distributed.DataParallel(net, context.group)
    return copy_to_cpu(net.weight), copy_to_cpu(net.running_mean)


def wrap_without_group(context: RankContext) -> None:
    """Wrap a module after the process group is destroyed."""
    dist.destroy_process_group()
    distributed.DataParallel(nn.Linear(2, 2))


def wrap_outside_group(context: RankContext) -> None:
    """Wrap a module on the last rank, with a group of all other ranks."""
    group = dist.new_group(list(range(context.size - 1)))
    if context.rank == context.size - 1:
        distributed.DataParallel(nn.Linear(2, 2), group)


def wrap_with_options(context: RankContext, **options: Any) -> None:
    """Wrap a module with options of the constructor."""
    distributed.DataParallel(nn.Linear(2, 2), context.group, **options)


def report_wrong_arguments(context: RankContext) -> list[str]:
    """Return the errors for wrong arguments, with their notes."""
    errors = []

    def report(function: Any, *args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except Exception as error:
            notes = getattr(error, "__notes__", [])
            errors.append(f"{type(error).__name__}: {error} {notes}")

    layer = nn.Linear(1, 1)
    report(distributed.DataParallel, len)
    report(distributed.DataParallel, layer, dim=[1.0])
    report(distributed.DataParallel, layer, source=True)
    report(distributed.DataParallel, layer, chunk_sizes=1)
    net = distributed.DataParallel(layer, context.group)
    report(net.mean, [1.0])
    report(net.mean, torch.ones(0))
    report(net.part, torch.tensor([]).to_sparse_coo())  # type: ignore[no-untyped-call] # torch's
    return errors


def step_with_hook(context: RankContext, place: int) -> None:
    """Run a step. Register a hook before the wrapper is made (0), before forward or backward."""
    net: Any = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    value = net
    steps: list[Any] = [
        lambda module: distributed.DataParallel(module, context.group),
        lambda wrapper: wrapper(torch.ones(2, 2)),
        lambda output: output.sum().backward(),
    ]
    called: list[Any] = []
    try:
        for index, step in enumerate(steps):
            if index == place:
                net[1].bias.register_post_accumulate_grad_hook(called.append)
            value = step(value)
    finally:
        assert not called
        assert net[1].weight.grad is None


def call_with_different_inputs(context: RankContext, different_rank: int, difference: str) -> None:
    """Call a module with inputs that differ on one rank in ``difference``."""
    x = probes.make_rank_rows(4)
    if context.rank == different_rank:
        x = {"shape": x[:, :1], "dtype": x.float(), "elements": x.flip(0)}[difference]
    net = distributed.DataParallel(nn.Identity(), context.group, check_inputs=True)
    net(x)


def call_with_equal_inputs(context: RankContext) -> Any:
    """Return the output for checked inputs that are equal on all ranks."""
    net = distributed.DataParallel(nn.Identity(), context.group, check_inputs=True)
    return copy_to_cpu(net(probes.make_rank_rows(2)))


def raise_on_ranks(context: RankContext, action: Any, ranks: tuple[int, ...]) -> None:
    """Call a module whose forward calls ``action`` on ``ranks``. ``action`` raises an error."""
    net = distributed.DataParallel(probes.ActOnRanks(action, ranks), context.group)
    net(probes.make_rank_rows(context.size))


def step_after_error(context: RankContext) -> Any:
    """Return the gradient of a step that follows a call that failed on rank 1."""
    module = probes.ActOnRanks(probes.raise_key_error, (1,))
    net = distributed.DataParallel(module, context.group)
    try:
        net(probes.make_rank_rows(context.size))
    except KeyError:
        module.ranks = ()
    net(probes.make_rank_rows(context.size)).sum().backward()
    return copy_to_cpu(module.layer.weight.grad)


def return_unpicklable(context: RankContext) -> None:
    """Call a module whose output cannot be pickled."""
    net = distributed.DataParallel(nn.Identity(), context.group)
    net([probes.make_rank_rows(context.size), lambda: None])


def call_twice_after_kill(context: RankContext, killed_rank: int) -> list[str]:
    """Kill the process of one rank in forward. Return the errors of two calls on the others."""
    module = probes.ActOnRanks(probes.kill_process, (killed_rank,))
    net = distributed.DataParallel(module, context.group)
    errors = []
    for _ in range(2):
        try:
            net(probes.make_rank_rows(context.size))
        except RuntimeError as error:
            errors.append(str(error))
    return errors


def kill_in_backward(context: RankContext, killed_rank: int) -> None:
    """Run a step that kills the process of one rank in backward."""
    module = probes.ActOnRanks(probes.kill_process, (killed_rank,), in_backward=True)
    net = distributed.DataParallel(module, context.group)
    net(probes.make_rank_rows(context.size)).sum().backward()
