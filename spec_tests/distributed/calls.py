"""Single calls over processes, each a function that a rank runs."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from spec_tests.distributed import probes
from spec_tests.distributed.pool import Rank

#: How the law's other side is made: by the part of the target, and a number of devices.
Make = Callable[[Any, nn.Module], Any]


def over_ranks(rank: Rank, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """``function(wrap, markers, *args)``, where ``wrap`` makes it compute over processes."""
    return function(
        lambda net, **more: rank.distributed.DataParallel(net, rank.group, **options, **more),
        rank.markers,
        *args,
    )


def nested(wrap: Any, markers: Any, rows: int) -> Any:
    """Outputs and gradients of a call with nested arguments."""
    net = probes.Nested()
    x, state, scale = (
        (torch.arange(size, dtype=torch.float64) + 1).requires_grad_()
        for size in (rows * 2, 3 * rows * 2, 2)
    )
    args = {"rows": x.view(rows, 2)}, markers.SplitAlong(state.view(3, rows, 2), 1)
    box = probes.Box(x.view(rows, 2) * 2, "in")
    out = wrap(net)(*args, markers.Whole(scale), box=box, factor=0.5)
    (out["rows"].sum() + (out["box"].rows ** 2).sum() + out["more"][0].sum()).backward()
    grads = [plain(each.grad) for each in (x, state, scale, *net.parameters())]
    texts = [type(out).__name__, type(out["more"]).__name__, type(out["box"]).__name__]
    values = [plain(out["rows"]), plain(out["more"][0]), plain(out["box"].rows)]
    return [texts, out["more"][1], out["box"].label, values, grads]


def along(wrap: Any, markers: Any, dim: int) -> Any:
    """Outputs and gradients where another dimension is split."""
    net = probes.Columns()
    x = torch.arange(30, dtype=torch.float64).reshape(5, 6).requires_grad_()
    out = wrap(net, dim=dim)(x)
    (out**2).sum().backward()
    return [plain(out), plain(x.grad), plain(net.weight.grad)]


def scalars(wrap: Any, markers: Any) -> Any:
    """Outputs without dimensions, joined to a vector."""
    net = probes.Scalar()
    out = wrap(net)(probes.numbered(3))
    out.prod().backward()
    return [plain(out), plain(net.layer.weight.grad)]


def packed(wrap: Any, markers: Any) -> Any:
    """A packed sequence in and out, with gradients."""
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
    sizes = [plain(out.batch_sizes), plain(out.unsorted_indices)]
    return [
        plain(out.data),
        sizes,
        plain(data.grad),
        plain(dict(net.named_parameters())["weight_hh_l0"].grad),
    ]


def choosy(wrap: Any, markers: Any, rows: list[float]) -> Any:
    """Gradients of parameters that some ranks, or none, have used."""
    net = probes.Choosy()
    x = torch.tensor(rows, dtype=torch.float64)[:, None].expand(-1, 2)
    wrapped = wrap(net)
    wrapped(x)[0].sum().backward()
    first = [plain(each.grad) for each in net.parameters()]
    (wrapped(-x)[0] ** 2).sum().backward()
    return [first, [plain(each.grad) for each in net.parameters()]]


def summed_up(wrap: Any, markers: Any) -> Any:
    """Outputs that depend on a buffer that every call changes, and one gradient of all."""
    net = probes.Summing()
    wrapped = wrap(net)
    outs = [wrapped(probes.numbered(4) + call) for call in range(3)]
    net.eval()
    with torch.no_grad():
        outs.append(wrapped(probes.numbered(1)))
    (outs[0] + outs[1] * outs[2]).sum().backward()
    return [list(map(plain, outs)), plain(net.layer.weight.grad)]


def hooked(wrap: Any, markers: Any) -> Any:
    """A hook on a parameter that only the first rank uses, which cannot take None."""
    net = probes.Columns()
    net.weight.register_hook(lambda grad: grad * 1.0)  # type: ignore[no-untyped-call] # torch's
    out = wrap(net)(torch.ones(1, 2, dtype=torch.float64))
    out.sum().backward()
    return plain(net.weight.grad)


def unsummed(wrap: Any, markers: Any, batches: int) -> Any:
    """Gradients that are summed once, at the last of some batches."""
    net = probes.linear()
    wrapped = wrap(net)
    with wrapped.no_sync():
        for batch in range(batches - 1):
            (wrapped(probes.numbered(2) + batch) ** 2).sum().backward()
    own = plain(net.weight.grad)
    (wrapped(probes.numbered(2) + batches - 1) ** 2).sum().backward()
    return own, plain(net.weight.grad)


def all_summed(wrap: Any, markers: Any, batches: int) -> Any:
    """The same gradients in one process."""
    net = probes.linear()
    wrapped = wrap(net)
    for batch in range(batches):
        (wrapped(probes.numbered(2) + batch) ** 2).sum().backward()
    return plain(net.weight.grad)


def sums_of(wrap: Any, markers: Any, is_trained: bool) -> list[str]:
    """The sums over processes, as PyTorch's profiler names them, that one call begins."""
    net = nn.Sequential(probes.linear(), nn.BatchNorm1d(2).double()).train(is_trained)
    wrapped = wrap(net)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        with torch.set_grad_enabled(is_trained):
            out = wrapped(probes.numbered(4))
        if is_trained:
            out.sum().backward()
    names = {event.name for event in profile.events() or []}
    return sorted(name for name in names if name.startswith("c10d::") and "reduce" in name)


def dropped(wrap: Any, markers: Any, ranks: int) -> Any:
    """Rows through dropout, the generator of every rank seeded alike."""
    torch.manual_seed(5)
    net = nn.Sequential(probes.linear(), nn.Dropout())
    return plain(wrap(net)(probes.numbered(ranks)))


def state_of(wrap: Any, markers: Any) -> Any:
    """The names of what is saved, and what is there after loading other values."""
    wrapped = wrap(nn.Sequential(probes.linear(), nn.BatchNorm1d(2)))
    names = list(wrapped.state_dict())
    names += [name for name, _ in wrapped.named_parameters()]
    zeros = {name: torch.zeros_like(each) for name, each in wrapped.state_dict().items()}
    wrapped.load_state_dict(copy.deepcopy(zeros))
    return names, plain(wrapped.module[0].weight)


def plain(tensor: Tensor | None) -> Tensor | None:
    """The values alone."""
    return None if tensor is None else tensor.detach().cpu().clone()
