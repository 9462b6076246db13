"""impl.distributed: refused modules, options and calls, and the texts of their errors."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from impl import distributed
from impl_tests.distributed.modules import make_linear, make_rank_rows
from impl_tests.distributed.results import check_close, check_same_error, copy_to_cpu


def differentiate_twice(context):
    net = distributed.DataParallel(make_linear(), context.group)
    x = make_rank_rows(context.size).requires_grad_()
    torch.autograd.grad(net(x).sum(), x, create_graph=True)


def differentiate(context, api, of_parameters):
    net = distributed.DataParallel(make_linear(), context.group)
    x = make_rank_rows(context.size).requires_grad_()
    loss = (net(x) ** 2).sum()
    inputs = list(net.parameters())[:1] if of_parameters else [x]
    if api == "autograd.grad":
        return copy_to_cpu(torch.autograd.grad(loss, inputs)[0])
    loss.backward(inputs=inputs)
    return copy_to_cpu(x.grad)


def wrap_sparse_module(context, layer_class):
    net = nn.Sequential(layer_class(4, 2, sparse=True))
    distributed.DataParallel(net, context.group)


def step_with_hook(context, place):
    """Register a hook before one of the steps. An optimizer might step in it, with wrong rows."""
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    value = net
    steps = {
        "constructor": lambda module: distributed.DataParallel(module, context.group),
        "forward": lambda wrapper: wrapper(torch.ones(2, 2)),
        "backward": lambda output: output.sum().backward(),
    }
    called = []
    try:
        for name, step in steps.items():
            if name == place:
                net[1].bias.register_post_accumulate_grad_hook(called.append)
            value = step(value)
    finally:
        assert not called
        assert net[1].weight.grad is None


def wrap_with_options(context, **options):
    distributed.DataParallel(nn.Linear(2, 2), context.group, **options)


SELECTED = "RuntimeError", "loss.backward() only"
SPARSE = "NotImplementedError", "gradients of 0 are sparse"
HOOK = "NotImplementedError", "1.bias has a hook of register_post_accumulate_grad_hook"
#: A function of each of two ranks, its other arguments, and its error.
REFUSALS = [
    (differentiate_twice, {}, ("RuntimeError", "does not support double backward")),
    (differentiate, {"api": "autograd.grad", "of_parameters": True}, SELECTED),
    (differentiate, {"api": "backward", "of_parameters": True}, SELECTED),
    (wrap_sparse_module, {"layer_class": nn.Embedding}, SPARSE),
    (wrap_sparse_module, {"layer_class": nn.EmbeddingBag}, SPARSE),
    (step_with_hook, {"place": "constructor"}, HOOK),
    (step_with_hook, {"place": "forward"}, HOOK),
    (step_with_hook, {"place": "backward"}, HOOK),
    (wrap_with_options, {"chunk_sizes": [1] * 3}, ("ValueError", "3 chunk sizes for 2 devices")),
    (wrap_with_options, {"chunk_sizes": [1, -1]}, ("ValueError", "negative")),
    (wrap_with_options, {"chunk_sizes": [0, 0]}, ("ValueError", "every chunk size is 0")),
    (wrap_with_options, {"source": 2}, ("ValueError", "source 2 is not a rank")),
    (wrap_with_options, {"source": -1}, ("ValueError", "source -1 is not a rank")),
]


@pytest.mark.parametrize(
    ("function", "arguments", "error"),
    REFUSALS,
    ids=[f"{function.__name__} {[*arguments.values()]}" for function, arguments, _ in REFUSALS],
)
def test_refused_calls_raise_on_every_rank(pool, function, arguments, error):
    check_same_error(pool.run(2, function, **arguments), *error)


@pytest.mark.parametrize("api", ["autograd.grad", "backward"])
def test_gradients_of_inputs_only_are_those_of_the_whole_batch(pool, api):
    x = make_rank_rows(3).requires_grad_()
    (make_linear()(x) ** 2).sum().backward()
    check_close(pool.run(3, differentiate, api, of_parameters=False), [x.grad] * 3)


def wrap_different_module(context, different_rank, difference):
    different = {
        "weight is (3, 2)": nn.Linear(2, 3, bias=False),
        "weight is (2, 2) of torch.float64": nn.Linear(2, 2, bias=False).double(),
        "bias is ": nn.Linear(2, 2),
    }
    net = different[difference] if context.rank == different_rank else nn.Linear(2, 2, bias=False)
    distributed.DataParallel(net, context.group)


@pytest.mark.parametrize(
    ("different_rank", "named_rank", "difference"),
    [
        (1, 1, "weight is (3, 2)"),
        (2, 2, "weight is (2, 2) of torch.float64"),
        (2, 2, "bias is "),
        (0, 1, "bias is "),
    ],
)
def test_different_modules_are_refused_on_every_rank(pool, different_rank, named_rank, difference):
    found = pool.run(3, wrap_different_module, different_rank, difference)
    text = f"the module of rank {named_rank} differs from that of rank 0"
    check_same_error(found, "RuntimeError", text, difference)


def wrap_different_values(context, is_frozen):
    net = nn.BatchNorm1d(2).requires_grad_(not is_frozen)
    net.weight.data.fill_(context.rank + 1)
    for buffer in net.buffers():
        buffer.fill_(context.rank + 1)
    distributed.DataParallel(net, context.group)
    return copy_to_cpu(net.weight), copy_to_cpu(net.running_mean)


@pytest.mark.parametrize("is_frozen", [False, True], ids="is_frozen={}".format)
def test_wrapping_broadcasts_parameters_and_buffers_of_rank_zero(pool, is_frozen):
    expected = [(torch.ones(2), torch.ones(2))] * 4
    check_close(pool.run(4, wrap_different_values, is_frozen), expected)


def wrap_tensor(context, kind, is_parameter):
    """Return a tensor that has other values on each rank, after the module has been wrapped."""
    rows = torch.full((3,), context.rank + 1.0)
    tensor = {
        "expanded": lambda: rows.expand(2, 3),
        "sparse": lambda: torch.eye(3).to_sparse(),
        "no dimensions": lambda: rows[0].to(torch.float8_e5m2),
    }.get(kind, lambda: rows.to(getattr(torch, kind)))()
    net = nn.Linear(3, 3)
    if is_parameter:
        net.other = nn.Parameter(tensor, requires_grad=False)
    else:
        net.register_buffer("other", tensor)
    wrapper = distributed.DataParallel(net, context.group)
    found = net.other.to_dense().float()  # `sync_buffers` may replace the tensor in a call.
    wrapper(torch.ones(4, 3)).sum().backward()
    return copy_to_cpu(found), copy_to_cpu(net.other.to_dense().float())


KINDS = [
    "expanded",
    "no dimensions",
    "float8_e4m3fn",
    "int16",
    "uint16",
    "uint32",
    "uint64",
    "bool",
]


@pytest.mark.parametrize("is_parameter", [False, True], ids="is_parameter={}".format)
@pytest.mark.parametrize("kind", KINDS)
def test_wrapping_broadcasts_tensors_that_gloo_cannot_send(pool, kind, is_parameter):
    ones = torch.ones({"expanded": (2, 3), "no dimensions": ()}.get(kind, (3,)))
    check_close(pool.run(2, wrap_tensor, kind, is_parameter), [(ones, ones)] * 2)


def test_sparse_buffers_are_ignored(pool):
    check_close(pool.run(2, wrap_tensor, "sparse", False), [(torch.eye(3), torch.eye(3))] * 2)


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


def call_with_different_inputs(context, different_rank, difference):
    x = make_rank_rows(4)
    if context.rank == different_rank:
        x = {"shape": x[:, :1], "dtype": x.float(), "elements": x.flip(0)}[difference]
    net = distributed.DataParallel(nn.Identity(), context.group, check_inputs=True)
    return copy_to_cpu(net(x))


@pytest.mark.parametrize(
    ("difference", "text"),
    [
        ("shape", "args[0] is (8, 1) of torch.float64"),
        ("dtype", "args[0] is (8, 2) of torch.float32"),
        ("elements", "elements of args[0]"),
    ],
    ids=["shape", "dtype", "elements"],
)
@pytest.mark.parametrize("different_rank", [0, 1, 3], ids="rank={}".format)
def test_different_inputs_are_refused_on_every_rank(pool, different_rank, difference, text):
    found = pool.run(4, call_with_different_inputs, different_rank, difference)
    check_same_error(found, "ValueError", f"rank {different_rank} has different inputs", text)


def test_equal_inputs_pass_the_check(pool):
    found = pool.run(2, call_with_different_inputs, None, "shape")
    check_close(found, [make_rank_rows(4)] * 2)
