"""impl.distributed: refused modules, options and calls, and the texts of their errors."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from impl import distributed
from impl_tests.distributed.probes import make_linear, make_rank_rows
from impl_tests.distributed.results import check_close, check_same_error, copy_to_cpu


def differentiate_twice(context):
    net = distributed.DataParallel(make_linear(), context.group)
    x = make_rank_rows(context.size).requires_grad_()
    torch.autograd.grad(net(x).sum(), x, create_graph=True)


@pytest.mark.parametrize("size", [1, 3])
def test_double_backward_is_refused(pool, size):
    found = pool.run(size, differentiate_twice)
    check_same_error(found, "RuntimeError", "does not support double backward", "create_graph")


def differentiate_some_parameters(context, api):
    net = distributed.DataParallel(make_linear(), context.group)
    loss = net(make_rank_rows(context.size)).sum()
    parameters = list(net.parameters())[:1]
    if api == "autograd.grad":
        torch.autograd.grad(loss, parameters)
    else:
        loss.backward(inputs=parameters)


@pytest.mark.parametrize("api", ["autograd.grad", "backward-inputs"])
@pytest.mark.parametrize("size", [1, 2])
def test_gradients_of_some_parameters_only_are_refused(pool, size, api):
    found = pool.run(size, differentiate_some_parameters, api)
    check_same_error(found, "RuntimeError", "loss.backward() only")


def differentiate_inputs(context, api):
    net = distributed.DataParallel(make_linear(), context.group)
    x = make_rank_rows(context.size).requires_grad_()
    loss = (net(x) ** 2).sum()
    if api == "autograd.grad":
        (grad,) = torch.autograd.grad(loss, x)
        return copy_to_cpu(grad)
    loss.backward(inputs=[x])
    return copy_to_cpu(x.grad)


@pytest.mark.parametrize("api", ["autograd.grad", "backward-inputs"])
def test_gradients_of_inputs_only_are_those_of_the_whole_batch(pool, api):
    x = make_rank_rows(3).requires_grad_()
    (make_linear()(x) ** 2).sum().backward()
    check_close(pool.run(3, differentiate_inputs, api), [x.grad] * 3)


def wrap_different_module(context, different_rank, difference):
    different = {
        "weight is (3, 2)": nn.Linear(2, 3, bias=False),
        "weight is (2, 2) of torch.float64": nn.Linear(2, 2, bias=False).double(),
        "bias is ": nn.Linear(2, 2),
    }
    net = different[difference] if context.rank == different_rank else nn.Linear(2, 2, bias=False)
    distributed.DataParallel(net, context.group)


@pytest.mark.parametrize(
    "difference",
    ["weight is (3, 2)", "weight is (2, 2) of torch.float64", "bias is "],
    ids=["shape", "dtype", "extra-parameter"],
)
@pytest.mark.parametrize("different_rank", [1, 2], ids="rank={}".format)
def test_different_modules_are_refused_on_every_rank(pool, different_rank, difference):
    found = pool.run(3, wrap_different_module, different_rank, difference)
    text = f"the module of rank {different_rank} differs from that of rank 0"
    check_same_error(found, "RuntimeError", text, difference)


def test_a_parameter_that_only_rank_zero_has_is_refused(pool):
    found = pool.run(3, wrap_different_module, 0, "bias is ")
    check_same_error(found, "RuntimeError", "the module of rank 1 differs", "bias is missing")


def wrap_sparse_module(context, layer_class):
    net = nn.Sequential(layer_class(4, 2, sparse=True))
    distributed.DataParallel(net, context.group)


@pytest.mark.parametrize("kind", [torch.nn.Embedding, torch.nn.EmbeddingBag])
def test_sparse_gradients_are_refused(pool, kind):
    found = pool.run(2, wrap_sparse_module, kind)
    check_same_error(found, "NotImplementedError", "gradients of 0 are sparse", "sparse=False")


def wrap_different_values(context, is_frozen):
    net = nn.BatchNorm1d(2).requires_grad_(not is_frozen)
    net.weight.data.fill_(context.rank + 1)
    for buffer in net.buffers():
        buffer.fill_(context.rank + 1)
    distributed.DataParallel(net, context.group)
    return copy_to_cpu(net.weight), copy_to_cpu(net.running_mean)


@pytest.mark.parametrize("is_frozen", [False, True], ids="is_frozen={}".format)
@pytest.mark.parametrize("size", [2, 4])
def test_wrapping_broadcasts_parameters_and_buffers_of_rank_zero(pool, size, is_frozen):
    expected = [(torch.ones(2), torch.ones(2))] * size
    check_close(pool.run(size, wrap_different_values, is_frozen), expected)


def wrap_without_group(context):
    dist.destroy_process_group()
    distributed.DataParallel(nn.Linear(2, 2))


def test_missing_process_group_is_refused(start_pool):
    found = start_pool(2).run(2, wrap_without_group)
    check_same_error(found, "RuntimeError", "no process group", "init_process_group", "torchrun")


def wrap_outside_group(context):
    group = dist.new_group(list(range(context.size - 1)))
    if context.rank == context.size - 1:
        distributed.DataParallel(nn.Linear(2, 2), group)


def test_a_process_outside_the_group_is_refused(pool):
    *members, outsider = pool.run(4, wrap_outside_group)
    assert members == [None] * 3
    check_same_error([outsider], "RuntimeError", "not in the process group")


def wrap_with_options(context, **options):
    distributed.DataParallel(nn.Linear(2, 2), context.group, **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({"chunk_sizes": [1, 2, 3]}, "3 chunk sizes for 2 devices", id="count"),
        pytest.param({"chunk_sizes": [1, -1]}, "negative", id="negative"),
        pytest.param({"chunk_sizes": [0, 0]}, "every chunk size is 0", id="zeros"),
        pytest.param({"source": 2}, "source 2 is not a rank", id="source=2"),
        pytest.param({"source": -1}, "source -1 is not a rank", id="source=-1"),
    ],
)
def test_wrong_options_are_refused(pool, options, text):
    found = pool.run(2, wrap_with_options, **options)
    check_same_error(found, "ValueError", text)


def report_wrong_arguments(context):
    errors = []

    def report(function, *args, **kwargs):
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
    report(net.part, torch.tensor([]).to_sparse_coo())
    return errors


def test_errors_name_the_argument(pool):
    (lines,) = pool.run(1, report_wrong_arguments)
    assert lines[:6] == [
        "TypeError: module must be a Module, not builtin_function_or_method []",
        "TypeError: dim must be an int, not list ['Argument: dim']",
        "TypeError: source must be an int, not bool ['Argument: source']",
        "TypeError: object of type 'int' has no len() ['Argument: chunk_sizes']",
        "TypeError: losses must be a tensor, not list []",
        "ValueError: all ranks have passed losses without elements to mean []",
    ]
    assert lines[-1].endswith("['Argument: value']")


def step_with_hook(context, place):
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    value = net
    steps = [
        lambda module: distributed.DataParallel(module, context.group),
        lambda wrapper: wrapper(torch.ones(2, 2)),
        lambda output: output.sum().backward(),
    ]
    called = []
    try:
        for index, step in enumerate(steps):
            if index == place:
                net[1].bias.register_post_accumulate_grad_hook(called.append)
            value = step(value)
    finally:
        assert not called
        assert net[1].weight.grad is None


@pytest.mark.parametrize("place", range(3))
def test_hooks_that_run_before_the_sum_of_the_ranks_are_refused(pool, place):
    """An optimizer that steps in such a hook would make the parameters of the ranks differ."""
    found = pool.run(1, step_with_hook, place)
    text = "1.bias has a hook of register_post_accumulate_grad_hook"
    check_same_error(found, "NotImplementedError", text)


def call_with_different_inputs(context, different_rank, difference):
    x = make_rank_rows(4)
    if context.rank == different_rank:
        x = {"shape": x[:, :1], "dtype": x.float(), "elements": x.flip(0)}[difference]
    net = distributed.DataParallel(nn.Identity(), context.group, check_inputs=True)
    net(x)


@pytest.mark.parametrize(
    ("difference", "text"),
    [
        ("shape", "args[0] has shape"),
        ("dtype", "args[0] has dtype"),
        ("elements", "elements of args[0]"),
    ],
    ids=["shape", "dtype", "elements"],
)
@pytest.mark.parametrize("different_rank", [0, 1, 3], ids="rank={}".format)
def test_different_inputs_are_refused_on_every_rank(pool, different_rank, difference, text):
    found = pool.run(4, call_with_different_inputs, different_rank, difference)
    check_same_error(found, "ValueError", f"rank {different_rank} has different inputs", text)


def call_with_equal_inputs(context):
    net = distributed.DataParallel(nn.Identity(), context.group, check_inputs=True)
    return copy_to_cpu(net(make_rank_rows(2)))


def test_equal_inputs_pass_the_check(pool):
    check_close(pool.run(2, call_with_equal_inputs), [make_rank_rows(2)] * 2)
