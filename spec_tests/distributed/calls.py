"""Single calls over processes. Each function runs on every rank, and in one process."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from spec_tests.distributed import probes
from spec_tests.distributed.pool import Rank


def call_on_rank(rank: Rank, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return ``function(wrap, markers, *args)``, where ``wrap`` parallelises over processes."""
    return function(
        lambda net, **more: rank.distributed.DataParallel(net, rank.group, **options, **more),
        rank.markers,
        *args,
    )


def call_with_nested_inputs(wrap: Any, markers: Any, rows: int) -> Any:
    """Return outputs and gradients of a call with nested inputs."""
    net = probes.NestedModule()
    x, state, scale = (
        (torch.arange(size, dtype=torch.float64) + 1).requires_grad_()
        for size in (rows * 2, 3 * rows * 2, 2)
    )
    args = {"rows": x.view(rows, 2)}, markers.SplitAlong(state.view(3, rows, 2), 1)
    box = probes.Box(x.view(rows, 2) * 2, "in")
    out = wrap(net)(*args, markers.Whole(scale), box=box, factor=0.5)
    (out["rows"].sum() + (out["box"].rows ** 2).sum() + out["more"][0].sum()).backward()
    grads = [copy_values(each.grad) for each in (x, state, scale, *net.parameters())]
    types = [type(out).__name__, type(out["more"]).__name__, type(out["box"]).__name__]
    values = [copy_values(each) for each in (out["rows"], out["more"][0], out["box"].rows)]
    return [types, out["more"][1], out["box"].label, values, grads]


def split_along(wrap: Any, markers: Any, dim: int) -> Any:
    """Return outputs and gradients of inputs split along ``dim``."""
    net = probes.Scale()
    x = torch.arange(30, dtype=torch.float64).reshape(5, 6).requires_grad_()
    out = wrap(net, dim=dim)(x)
    (out**2).sum().backward()
    return [copy_values(out), copy_values(x.grad), copy_values(net.weight.grad)]


def return_scalars(wrap: Any, markers: Any) -> Any:
    """Return the gathered 0-dim outputs, and a gradient."""
    net = probes.LinearSum()
    out = wrap(net)(probes.rank_rows(3))
    out.prod().backward()
    return [copy_values(out), copy_values(net.layer.weight.grad)]


def call_with_packed_sequence(wrap: Any, markers: Any) -> Any:
    """Return the outputs and gradients of a packed sequence."""
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
    sizes = [copy_values(out.batch_sizes), copy_values(out.unsorted_indices)]
    return [
        copy_values(out.data),
        sizes,
        copy_values(data.grad),
        copy_values(dict(net.named_parameters())["weight_hh_l0"].grad),
    ]


def use_some_parameters(wrap: Any, markers: Any, rows: list[float]) -> Any:
    """Return gradients of parameters that some ranks, or none, used."""
    net = probes.ConditionalLayers()
    x = torch.tensor(rows, dtype=torch.float64)[:, None].expand(-1, 2)
    wrapped = wrap(net)
    wrapped(x)[0].sum().backward()
    first = [copy_values(each.grad) for each in net.parameters()]
    (wrapped(-x)[0] ** 2).sum().backward()
    return [first, [copy_values(each.grad) for each in net.parameters()]]


def update_buffer(wrap: Any, markers: Any) -> Any:
    """Return outputs that depend on a buffer that every call updates, and a gradient of all."""
    net = probes.RunningTotal()
    wrapped = wrap(net)
    outs = [wrapped(probes.rank_rows(4) + call) for call in range(3)]
    net.eval()
    with torch.no_grad():
        outs.append(wrapped(probes.rank_rows(1)))
    (outs[0] + outs[1] * outs[2]).sum().backward()
    return [list(map(copy_values, outs)), copy_values(net.layer.weight.grad)]


def call_with_hook(wrap: Any, markers: Any) -> Any:
    """Return the gradient of a parameter that rank 0 alone uses; its hook fails on None."""
    net = probes.Scale()
    net.weight.register_hook(lambda grad: grad * 1.0)  # type: ignore[no-untyped-call] # torch's
    out = wrap(net)(torch.ones(1, 2, dtype=torch.float64))
    out.sum().backward()
    return copy_values(net.weight.grad)


def accumulate_with_no_sync(wrap: Any, markers: Any, batches: int) -> Any:
    """Return a gradient before and after the last batch, the only one outside of ``no_sync``."""
    net = probes.make_linear()
    wrapped = wrap(net)
    with wrapped.no_sync():
        for batch in range(batches - 1):
            (wrapped(probes.rank_rows(2) + batch) ** 2).sum().backward()
    local = copy_values(net.weight.grad)
    (wrapped(probes.rank_rows(2) + batches - 1) ** 2).sum().backward()
    return local, copy_values(net.weight.grad)


def accumulate(wrap: Any, markers: Any, batches: int) -> Any:
    """Return the accumulated gradient of the same batches."""
    net = probes.make_linear()
    wrapped = wrap(net)
    for batch in range(batches):
        (wrapped(probes.rank_rows(2) + batch) ** 2).sum().backward()
    return copy_values(net.weight.grad)


def profile_reductions(wrap: Any, markers: Any, is_training: bool) -> list[str]:
    """Return the reductions over processes of one call, as PyTorch's profiler names them."""
    net = nn.Sequential(probes.make_linear(), nn.BatchNorm1d(2).double()).train(is_training)
    wrapped = wrap(net)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        with torch.set_grad_enabled(is_training):
            out = wrapped(probes.rank_rows(4))
        if is_training:
            out.sum().backward()
    names = {event.name for event in profile.events() or []}
    return sorted(name for name in names if name.startswith("c10d::") and "reduce" in name)


def apply_dropout(wrap: Any, markers: Any, ranks: int) -> Any:
    """Return rows after dropout; the generators of all ranks have the same seed."""
    torch.manual_seed(5)
    net = nn.Sequential(probes.make_linear(), nn.Dropout())
    return copy_values(wrap(net)(probes.rank_rows(ranks)))


def load_state_dict(wrap: Any, markers: Any) -> Any:
    """Return the names in the state dict, and a parameter after loading zeros."""
    wrapped = wrap(nn.Sequential(probes.make_linear(), nn.BatchNorm1d(2)))
    names = list(wrapped.state_dict())
    names += [name for name, _ in wrapped.named_parameters()]
    zeros = {name: torch.zeros_like(each) for name, each in wrapped.state_dict().items()}
    wrapped.load_state_dict(copy.deepcopy(zeros))
    return names, copy_values(wrapped.module[0].weight)


def copy_values(tensor: Tensor | None) -> Tensor | None:
    """Return a detached copy on the CPU."""
    return None if tensor is None else tensor.detach().cpu().clone()
