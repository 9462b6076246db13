"""Single calls of a wrapped module, run on every rank of a group and in one process.

The parameter ``wrap`` of each call is a function that wraps a module in DataParallel.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import impl
from impl import distributed
from impl_tests.distributed import probes
from impl_tests.distributed.pool import RankContext


def call_on_rank(
    context: RankContext, function: Callable[..., Any], *args: Any, **options: Any
) -> Any:
    """Return the result of ``function``, called with ``wrap`` and ``args``.

    ``wrap`` wraps a module for the ranks of the group, with ``options``.
    """
    return function(
        lambda net, **more: distributed.DataParallel(net, context.group, **options, **more),
        *args,
    )


def call_with_nested_inputs(wrap: Any, rows: int) -> Any:
    """Return outputs and gradients of a call with nested inputs."""
    net = probes.ModuleWithNestedArguments()
    x, state, scale = (
        (torch.arange(size, dtype=torch.float64) + 1).requires_grad_()
        for size in (rows * 2, 3 * rows * 2, 2)
    )
    args = {"rows": x.view(rows, 2)}, impl.SplitAlong(state.view(3, rows, 2), 1)
    box = probes.Box(x.view(rows, 2) * 2, "in")
    out = wrap(net)(*args, impl.Whole(scale), box=box, factor=0.5)
    (out["rows"].sum() + (out["box"].rows ** 2).sum() + out["more"][0].sum()).backward()
    grads = [copy_to_cpu(each.grad) for each in (x, state, scale, *net.parameters())]
    types = [type(out).__name__, type(out["more"]).__name__, type(out["box"]).__name__]
    values = [copy_to_cpu(each) for each in (out["rows"], out["more"][0], out["box"].rows)]
    return [types, out["more"][1], out["box"].label, values, grads]


def call_with_split_dim(wrap: Any, dim: int) -> Any:
    """Return outputs and gradients of inputs split along ``dim``."""
    net = probes.ScaleByRows()
    x = torch.arange(30, dtype=torch.float64).reshape(5, 6).requires_grad_()
    out = wrap(net, dim=dim)(x)
    (out**2).sum().backward()
    return [copy_to_cpu(out), copy_to_cpu(x.grad), copy_to_cpu(net.weight.grad)]


def call_with_scalar_outputs(wrap: Any) -> Any:
    """Return the vector of the 0-dim outputs of all ranks, and the gradient of the weight."""
    net = probes.LinearSum()
    out = wrap(net)(probes.make_rank_rows(3))
    out.prod().backward()
    return [copy_to_cpu(out), copy_to_cpu(net.layer.weight.grad)]


def call_with_packed_sequence(wrap: Any) -> Any:
    """Return outputs and gradients of a recurrent layer that gets a packed sequence."""
    net = nn.GRU(2, 2).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(0.3)
    rows = [torch.arange(2.0 * n, dtype=torch.float64).view(n, 2) for n in (3, 1, 4, 2, 2)]
    sequence = pack_sequence(rows, enforce_sorted=False)
    data = sequence.data.requires_grad_()
    out, _ = wrap(net, dim=1)(sequence)
    assert isinstance(out, PackedSequence)
    torch.autograd.backward((out.data**2).sum())
    sizes = [copy_to_cpu(out.batch_sizes), copy_to_cpu(out.unsorted_indices)]
    return [
        copy_to_cpu(out.data),
        sizes,
        copy_to_cpu(data.grad),
        copy_to_cpu(dict(net.named_parameters())["weight_hh_l0"].grad),
    ]


def call_with_unused_parameters(wrap: Any, rows: list[float]) -> Any:
    """Return the gradients of layers that all ranks, some ranks and no rank use."""
    net = probes.ConditionalLayers()
    x = torch.tensor(rows, dtype=torch.float64)[:, None].expand(-1, 2)
    wrapped = wrap(net)
    wrapped(x)[0].sum().backward()
    first = [copy_to_cpu(each.grad) for each in net.parameters()]
    (wrapped(-x)[0] ** 2).sum().backward()
    return [first, [copy_to_cpu(each.grad) for each in net.parameters()]]


def call_with_hook(wrap: Any) -> Any:
    """Return the gradient of a parameter whose hook fails for None. Only rank 0 gets a row.

    The hook doubles the gradient.
    """
    net = probes.Scale()
    net.weight.register_hook(lambda grad: grad * 2.0)  # type: ignore[no-untyped-call] # torch's
    out = wrap(net)(torch.ones(1, 2, dtype=torch.float64))
    out.sum().backward()
    return copy_to_cpu(net.weight.grad)


def accumulate_gradients_with_no_sync(wrap: Any, batches: int) -> Any:
    """Return the gradient after all batches but the last, in ``no_sync``, and after the last."""
    net = probes.make_linear()
    wrapped = wrap(net)
    with wrapped.no_sync():
        for batch in range(batches - 1):
            (wrapped(probes.make_rank_rows(2) + batch) ** 2).sum().backward()
    local = copy_to_cpu(net.weight.grad)
    (wrapped(probes.make_rank_rows(2) + batches - 1) ** 2).sum().backward()
    return local, copy_to_cpu(net.weight.grad)


def accumulate_gradients(wrap: Any, batches: int) -> Any:
    """Return the gradient accumulated over all batches, without ``no_sync``."""
    net = probes.make_linear()
    wrapped = wrap(net)
    for batch in range(batches):
        (wrapped(probes.make_rank_rows(2) + batch) ** 2).sum().backward()
    return copy_to_cpu(net.weight.grad)


def list_reductions(wrap: Any, is_training: bool) -> list[str]:
    """Return the names of the reductions in a training step, or in a call without gradients."""
    net = nn.Sequential(probes.make_linear(), nn.BatchNorm1d(2).double()).train(is_training)
    wrapped = wrap(net)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        with torch.set_grad_enabled(is_training):
            out = wrapped(probes.make_rank_rows(4))
        if is_training:
            out.sum().backward()
    return [name for name in _collectives(profile.events()) if "reduce" in name]


def list_collectives_of_backward(wrap: Any) -> list[str]:
    """Return the names of the collectives in a backward of a module with buffers."""
    wrapped = wrap(nn.Sequential(probes.make_linear(), nn.BatchNorm1d(2).double()))
    out = wrapped(probes.make_rank_rows(4))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        out.sum().backward()
    return _collectives(profile.events())


def _collectives(events: Any) -> list[str]:
    names = {event.name for event in events or []}
    return sorted(name for name in names if name.startswith("c10d::"))


def apply_dropout(wrap: Any, ranks: int) -> Any:
    """Return the output of dropout. The random generators of all ranks get the same seed."""
    torch.manual_seed(5)
    net = nn.Sequential(probes.make_linear(), nn.Dropout())
    return copy_to_cpu(wrap(net)(probes.make_rank_rows(ranks)))


def save_and_load_state_dict(wrap: Any) -> Any:
    """Return the names in the state dict, and a parameter after loading zeros."""
    wrapped = wrap(nn.Sequential(probes.make_linear(), nn.BatchNorm1d(2)))
    names = list(wrapped.state_dict())
    names += [name for name, _ in wrapped.named_parameters()]
    zeros = {name: torch.zeros_like(each) for name, each in wrapped.state_dict().items()}
    wrapped.load_state_dict(copy.deepcopy(zeros))
    return names, copy_to_cpu(wrapped.module[0].weight)


def copy_to_cpu(tensor: Tensor | None) -> Tensor | None:
    """Return a detached copy on the CPU; None for None."""
    return None if tensor is None else tensor.detach().cpu().clone()
