"""impl.distributed: single calls give the outputs and gradients of one process."""

import copy
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import impl
from impl import DataParallel, distributed
from impl_tests.distributed.modules import make_linear, make_rank_rows, make_scale_by_rows
from impl_tests.distributed.results import check_close, copy_to_cpu
from spec_tests.strategies.small_modules import Calls

#: Numbers of ranks. They are fixed, because a call on several processes is slow.
SIZES = (2, 3, 4)


def run_in_one_process(size, function, *args):
    """Return the result of ``function`` if DataParallel uses the CPU ``size`` times."""

    def wrap(net, **options):
        return DataParallel(net, ["cpu"] * size, **options)

    return function(wrap, *args)


def call_on_rank(context, function, *args, **options):
    return function(
        lambda net, **more: distributed.DataParallel(net, context.group, **options, **more), *args
    )


@dataclass
class Box:
    """A dataclass with a tensor and a text, used as input and as output."""

    rows: Tensor
    label: str


def compute_nested(module, x, state, scale, *, box, factor):
    rows = module.layer(x["rows"]) * scale * factor + state.mean(0) + box.rows
    return {
        "rows": rows,
        "more": (rows.sum(1), [rows.size(0), box.label]),
        "box": Box(rows * 2, "out"),
    }


def call_with_nested_inputs(wrap, rows):
    net = Calls(compute_nested, layer=make_linear())
    x, state, scale = (
        (torch.arange(size, dtype=torch.float64) + 1).requires_grad_()
        for size in (rows * 2, 3 * rows * 2, 2)
    )
    args = ({"rows": x.view(rows, 2)}, impl.SplitAlong(state.view(3, rows, 2), 1))
    box = Box(x.view(rows, 2) * 2, "in")
    out = wrap(net)(*args, impl.Whole(scale), box=box, factor=0.5)
    (out["rows"].sum() + (out["box"].rows ** 2).sum() + out["more"][0].sum()).backward()
    grads = [copy_to_cpu(each.grad) for each in (x, state, scale, *net.parameters())]
    types = [type(out).__name__, type(out["more"]).__name__, type(out["box"]).__name__]
    values = [copy_to_cpu(each) for each in (out["rows"], out["more"][0], out["box"].rows)]
    return [types, out["more"][1], out["box"].label, values, grads]


def call_with_split_dim(wrap, dim):
    net = make_scale_by_rows()
    x = torch.arange(30, dtype=torch.float64).reshape(5, 6).requires_grad_()
    out = wrap(net, dim=dim)(x)
    (out**2).sum().backward()
    return [copy_to_cpu(out), copy_to_cpu(x.grad), copy_to_cpu(net.weight.grad)]


def call_with_packed_sequence(wrap):
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


def call_with_scalar_outputs(wrap):
    net = Calls(lambda module, x: module.layer(x).sum(), layer=make_linear())
    out = wrap(net)(make_rank_rows(3))
    out.prod().backward()
    return [copy_to_cpu(out), copy_to_cpu(net.layer.weight.grad)]


def use_layers(module, x):
    """Return the outputs of one layer, of another one for positive rows, and of a third one."""
    y = module.always(x)
    return (module.if_positive(y) if bool((x > 0).all()) else y, module.extra(x))


def call_with_unused_parameters(wrap, rows):
    names = ("always", "if_positive", "extra", "never")
    net = Calls(use_layers, **{name: make_linear() for name in names})
    x = torch.tensor(rows, dtype=torch.float64)[:, None].expand(-1, 2)
    wrapped = wrap(net)
    wrapped(x)[0].sum().backward()
    first = [copy_to_cpu(each.grad) for each in net.parameters()]
    (wrapped(-x)[0] ** 2).sum().backward()
    return [first, [copy_to_cpu(each.grad) for each in net.parameters()]]


def call_with_hook(wrap):
    net = make_scale_by_rows()
    net.weight.register_hook(lambda grad: grad * 2.0)
    out = wrap(net)(torch.ones(1, 2, dtype=torch.float64))
    out.sum().backward()
    return copy_to_cpu(net.weight.grad)


def train_after_inference_mode(wrap):
    net = make_linear()
    wrapped = wrap(net)
    wrapped(make_rank_rows(2)).sum().backward()
    net.bias.requires_grad_(False)
    with torch.inference_mode():
        wrapped(make_rank_rows(2))
    wrapped(make_rank_rows(2)).sum().backward()
    return copy_to_cpu(net.weight.grad)


def save_and_load_state_dict(wrap):
    wrapped = wrap(nn.Sequential(make_linear(), nn.BatchNorm1d(2)))
    names = list(wrapped.state_dict())
    names += [name for name, _ in wrapped.named_parameters()]
    zeros = {name: torch.zeros_like(each) for name, each in wrapped.state_dict().items()}
    wrapped.load_state_dict(copy.deepcopy(zeros))
    return names, copy_to_cpu(wrapped.module[0].weight)


#: For each name: a function of ``wrap``, and its other arguments.
PROGRAMS = {
    **{f"nested inputs, rows={rows}": (call_with_nested_inputs, rows) for rows in (1, 3, 4, 6)},
    **{f"dim={dim}": (call_with_split_dim, dim) for dim in (1, -1, 0, -2)},
    "packed sequence": (call_with_packed_sequence,),
    "scalar outputs": (call_with_scalar_outputs,),
    "no rank uses a parameter": (call_with_unused_parameters, [-1.0, -1.0, -1.0]),
    "rank 0 uses a parameter": (call_with_unused_parameters, [1.0, -1.0, -1.0]),
    "an idle rank": (call_with_unused_parameters, [2.0]),
    "hook of a parameter": (call_with_hook,),
    "a frozen parameter, and inference mode": (train_after_inference_mode,),
    "state": (save_and_load_state_dict,),
}


@pytest.mark.filterwarnings("ignore:Was asked to gather along dimension 0")
@pytest.mark.parametrize("size", SIZES, ids="ranks={}".format)
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_compute_the_same_as_in_one_process(pool, size, program):
    expected = run_in_one_process(size, *PROGRAMS[program])
    for found in pool.run(size, call_on_rank, *PROGRAMS[program]):
        check_close(found, expected, (size, program))


def accumulate_gradients(wrap, batches, block=lambda wrapped: nullcontext()):
    net = make_linear()
    wrapped = wrap(net)
    with block(wrapped):
        for batch in range(batches - 1):
            (wrapped(make_rank_rows(2) + batch) ** 2).sum().backward()
    before = copy_to_cpu(net.weight.grad)
    (wrapped(make_rank_rows(2) + batches - 1) ** 2).sum().backward()
    return before, copy_to_cpu(net.weight.grad)


@pytest.mark.parametrize("batches", [2, 4])
def test_gradients_are_summed_after_no_sync(pool, batches):
    _, expected = run_in_one_process(2, accumulate_gradients, batches)
    no_sync = distributed.DataParallel.no_sync
    found = pool.run(2, call_on_rank, accumulate_gradients, batches, no_sync)
    # Inside no_sync the gradients of the ranks differ.
    assert not torch.equal(found[0][0], found[1][0])
    check_close([found[0][1], found[1][1]], [expected, expected])


def list_collectives(wrap, is_training):
    """Return the collectives of a forward, and of its backward: names, and shapes of tensors."""
    wrapped = wrap(nn.Sequential(make_linear(), nn.BatchNorm1d(2).double()).train(is_training))

    def profiled():
        activities = [torch.profiler.ProfilerActivity.CPU]
        return torch.profiler.profile(activities=activities, record_shapes=True)

    with profiled() as forward, torch.set_grad_enabled(is_training):
        out = wrapped(make_rank_rows(4))
    with profiled() as backward:
        if is_training:
            out.sum().backward()
    return [
        sorted((each.name, each.input_shapes) for each in profile.events() or [])
        for profile in (forward, backward)
    ]


@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("size", SIZES, ids="ranks={}".format)
def test_only_a_backward_sums_over_the_ranks(pool, size, is_training):
    """A broadcast of buffers in backward would change those that the graph has saved."""
    for forward, backward in pool.run(size, call_on_rank, list_collectives, is_training):
        assert not [name for name, _ in forward if "reduce" in name]
        collectives = {name for name, _ in backward if name.startswith("c10d::")}
        assert collectives == {"c10d::allreduce_"} if is_training else not collectives
        # Ten gradients, and the use of each of four parameters and of a leaf without elements.
        summed = [shapes for name, shapes in backward if name == "gloo:all_reduce"]
        assert summed == [[[5]], [[10]]] * is_training


def apply_dropout(wrap, ranks):
    torch.manual_seed(5)
    net = nn.Sequential(make_linear(), nn.Dropout())
    return copy_to_cpu(wrap(net)(make_rank_rows(ranks)))


@pytest.mark.parametrize("size", SIZES)
def test_each_rank_draws_from_its_own_generator(pool, size):
    # Expected: the same layer with dropout, applied to the rows of each rank with the same seed.
    chunks = make_rank_rows(size).split(2)
    expected = [
        apply_dropout(lambda net, chunk=chunk: lambda _: net(chunk), size) for chunk in chunks
    ]
    for found in pool.run(size, call_on_rank, apply_dropout, size):
        check_close(found, torch.cat(expected))
