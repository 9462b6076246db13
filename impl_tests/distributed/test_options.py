"""impl.distributed: ``source``, ``gather_output=False``, data_parallel, and groups of one rank."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from bench.rank_pool import Raised
from impl import distributed
from impl_tests.distributed.modules import make_linear, make_scale_by_rows
from impl_tests.distributed.results import check_close, copy_to_cpu
from spec_tests.machine.devices import not_run
from spec_tests.machine.processes import run_script
from spec_tests.machine.target import Target

NCCL_SCRIPT = """
import tempfile
import torch.distributed as dist
from impl import distributed

device = topology.device(0)
torch.accelerator.set_device_index(device.index)
store = dist.FileStore(tempfile.mktemp(), 1)
dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=device)
net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(device)
x = torch.arange(8.0, device=device).view(4, 2).requires_grad_()
wrapped = distributed.DataParallel(net)
grads = []
for module in (net, wrapped):
    net.zero_grad()
    x.grad = None
    (module(x) ** 2).sum().backward()
    grads.append([x.grad, *(parameter.grad.clone() for parameter in net.parameters())])
torch.testing.assert_close(grads[0], grads[1])
dist.destroy_process_group()
print("equal")
"""


def make_batch(rows):
    batch = torch.arange(rows * 2, dtype=torch.float64).view(rows, 2) + 1
    return batch.requires_grad_()


def step(context, rows, **options):
    """Return the rows of the output, the loss, and the gradients of a weight and of the batch."""
    net = make_linear()
    wrapped = distributed.DataParallel(net, context.group, **options)
    x, y = make_batch(rows), torch.ones(rows, 2, dtype=torch.float64)
    out = wrapped(x) if options.get("source", context.rank) == context.rank else wrapped()
    if options.get("gather_output", True):
        loss = ((out - y) ** 2).sum(1).mean()
    else:
        loss = wrapped.mean(((out - wrapped.part(y)) ** 2).sum(1))
    torch.autograd.backward(loss)
    return len(out), copy_to_cpu(loss), copy_to_cpu(net.weight.grad), copy_to_cpu(x.grad)


def step_in_one_process(rows):
    net = make_linear()
    x = make_batch(rows)
    loss = ((net(x) - 1) ** 2).sum(1).mean()
    loss.backward()
    return copy_to_cpu(loss), copy_to_cpu(net.weight.grad), copy_to_cpu(x.grad)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("source", [0, 1, 2])
def test_every_rank_gets_the_batch_of_the_source(pool, source, rows):
    loss, weight_grad, x_grad = step_in_one_process(rows)
    grads = [x_grad if rank == source else None for rank in range(3)]
    expected = [(rows, loss, weight_grad, grad) for grad in grads]
    check_close(pool.run(3, step, rows, source=source), expected)


@pytest.mark.parametrize(
    ("sizes", "chunk_sizes"),
    [((3,), None), ((3, 2), None), ((3, 3, 3, 0), None), ((1, 3, 2), (1, 3, 2)), ((4, 2, 0),) * 2],
)
def test_the_mean_over_ranks_has_the_gradients_of_the_whole_batch(pool, sizes, chunk_sizes):
    ranks, rows = len(sizes), sum(sizes)
    found = pool.run(ranks, step, rows, gather_output=False, chunk_sizes=chunk_sizes)
    check_close(found, [(size, *step_in_one_process(rows)) for size in sizes])


def send_unpicklable_batch(context):
    net = distributed.DataParallel(nn.Identity(), context.group, source=1)
    net(lambda: None)


def test_an_unpicklable_batch_is_refused_on_every_rank(pool):
    found = pool.run(3, send_unpicklable_batch)
    assert [type(result) for result in found] == [Raised] * 3, found
    assert len({result.text for result in found}) == 1
    assert "in rank 1" in found[0].text


def call_function_twice(context, dim):
    net = make_scale_by_rows()
    x = make_batch(4)
    first = distributed.data_parallel(net, x, context.group, dim=dim)
    second = distributed.data_parallel(net, (), context.group, dim=dim, module_kwargs={"x": x})
    (first**2 + second).sum().backward()
    return copy_to_cpu(first), copy_to_cpu(second), copy_to_cpu(net.weight.grad)


@pytest.mark.parametrize(("dim", "rows_per_rank"), [(0, 2), (1, 4)], ids=["dim=0", "dim=1"])
def test_data_parallel_function_returns_the_outputs_of_the_module(pool, dim, rows_per_rank):
    x = make_batch(4).detach() * rows_per_rank
    weight_grad = (6 * x**2 + x).sum()
    expected = [(3 * x, 3 * x, weight_grad)] * 3
    check_close(pool.run(3, call_function_twice, dim), expected)


def call_with_one_rank(context):
    wrapped = distributed.DataParallel(nn.Identity(), context.group)
    x = make_batch(2)
    out, number, function = wrapped([x, 3, len])
    (out * 2).sum().backward()
    return copy_to_cpu(out), number, function is len, copy_to_cpu(x.grad)


def test_one_rank_returns_the_output_of_its_module(pool):
    x = make_batch(2).detach()
    expected = [(x, 3, True, torch.full_like(x, 2.0))]
    check_close(pool.run(1, call_with_one_rank), expected)


def test_one_rank_on_a_gpu_computes_the_same_as_its_module(topology):
    if topology.accelerator != "cuda" or not dist.is_nccl_available():
        not_run("needs a CUDA device and NCCL")
    done = run_script(NCCL_SCRIPT, Target("impl"), topology)
    assert done.stdout == "equal\n", done.stderr
