"""impl.distributed: ``source``, ``gather_output=False``, data_parallel, and groups of one rank."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from impl import distributed
from impl_tests.distributed.pool import Raised
from impl_tests.distributed.probes import ScaleByRows, make_linear
from impl_tests.distributed.results import check_close, copy_to_cpu
from spec_tests.harness.environment.scripts import run_script
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import not_run

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


def require_nccl(topology):
    """Report the test as not run if there is no CUDA device or no NCCL."""
    if topology.accelerator != "cuda" or not dist.is_nccl_available():
        not_run("needs a CUDA device and NCCL")


def step_with_source(context, source, rows):
    net = make_linear()
    wrapped = distributed.DataParallel(net, context.group, source=source)
    x = make_batch(rows)
    out = wrapped(x * 2) if context.rank == source else wrapped()
    (out**2).sum().backward()
    return copy_to_cpu(out), copy_to_cpu(net.weight.grad), copy_to_cpu(x.grad)


def make_batch(rows):
    batch = torch.arange(rows * 2, dtype=torch.float64).view(rows, 2) + 1
    return batch.requires_grad_()


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("source", [0, 1, 2])
def test_every_rank_gets_the_batch_of_the_source(pool, source, rows):
    net = make_linear()
    x = make_batch(rows)
    out = net(x * 2)
    (out**2).sum().backward()
    grads = [x.grad if rank == source else None for rank in range(3)]
    expected = [(out.detach(), net.weight.grad, grad) for grad in grads]
    check_close(pool.run(3, step_with_source, source, rows), expected)


def send_unpicklable_batch(context):
    net = distributed.DataParallel(nn.Identity(), context.group, source=1)
    net(lambda: None)


def test_an_unpicklable_batch_is_refused_on_every_rank(pool):
    found = pool.run(3, send_unpicklable_batch)
    assert [type(result) for result in found] == [Raised] * 3, found
    assert len({result.text for result in found}) == 1
    assert "in rank 1" in found[0].text


def step_without_gather(context, rows, **options):
    net = make_linear()
    wrapped = distributed.DataParallel(net, context.group, gather_output=False, **options)
    x = make_batch(rows)
    out = wrapped(x)
    target = wrapped.part(torch.ones(rows, 2, dtype=torch.float64))
    loss = wrapped.mean(((out - target) ** 2).sum(1))
    torch.autograd.backward(loss)
    return out.size(0), copy_to_cpu(loss), copy_to_cpu(net.weight.grad), copy_to_cpu(x.grad)


def step_in_one_process(rows):
    net = make_linear()
    x = make_batch(rows)
    loss = ((net(x) - 1) ** 2).sum(1).mean()
    loss.backward()
    return copy_to_cpu(loss), copy_to_cpu(net.weight.grad), copy_to_cpu(x.grad)


@pytest.mark.parametrize(("size", "rows"), [(1, 3), (2, 5), (3, 4), (4, 9)])
def test_the_mean_over_ranks_has_the_gradients_of_the_whole_batch(pool, size, rows):
    found = pool.run(size, step_without_gather, rows)
    assert sum(result[0] for result in found) == rows
    check_close([result[1:] for result in found], [step_in_one_process(rows)] * size)


@pytest.mark.parametrize("sizes", [(1, 3, 2), (4, 2, 0)], ids="sizes={}".format)
def test_each_rank_gets_as_many_rows_as_its_chunk_size(pool, sizes):
    found = pool.run(3, step_without_gather, 6, chunk_sizes=sizes)
    assert [result[0] for result in found] == list(sizes)
    check_close([result[1:] for result in found], [step_in_one_process(6)] * 3)


def call_function_twice(context, dim):
    net = ScaleByRows()
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
    found, _ = wrapped((x.detach(), lambda: None))
    return copy_to_cpu(out), number, function is len, copy_to_cpu(x.grad), copy_to_cpu(found)


def test_one_rank_returns_the_output_of_its_module(pool):
    x = make_batch(2).detach()
    expected = [(x, 3, True, torch.full_like(x, 2.0), x)]
    check_close(pool.run(1, call_with_one_rank), expected)


def test_one_rank_on_a_gpu_computes_the_same_as_its_module(topology):
    require_nccl(topology)
    done = run_script(NCCL_SCRIPT, Target("impl"), topology)
    assert done.stdout == "equal\n", done.stderr
