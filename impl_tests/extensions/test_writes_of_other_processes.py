"""Writes of other processes to parameters whose copies are kept."""

import pytest
import torch

from spec_tests.harness.environment.scripts import run_program

PROCESSES = """
import torch
import torch.distributed as dist
from torch import multiprocessing, nn
import impl

X = torch.ones(4, 2)

def change_shared(net):
    with torch.no_grad():
        net.weight.add_(1)

def start_group(rank, path):
    dist.init_process_group("gloo", f"file://{path}", rank=rank, world_size=2)

def communicate(path):
    start_group(1, path)
    with torch.no_grad():
        dist.broadcast(torch.full((2, 2), 7.0), src=1)
        dist.all_reduce(torch.full((2,), 3.0))

def start(function, *args):
    process = multiprocessing.get_context("fork").Process(target=function, args=args)
    process.start()
    return process

def run(path):
    torch.set_num_threads(1)
    module = nn.Linear(2, 2).requires_grad_(False)
    module.share_memory()
    processes = start(change_shared, module), start(communicate, path)
    start_group(0, path)
    net = impl.DataParallel(module, ["cpu", "cpu"], cache_frozen_parameters=True)
    net(X)
    processes[0].join()
    print(torch.allclose(net(X), module(X)))
    dist.broadcast(module.weight, src=1)
    print(torch.allclose(net(X), module(X)))
    dist.all_reduce(module.bias)
    print(torch.allclose(net(X), module(X)))
    processes[1].join()

run(PATH)
"""


@pytest.mark.skipif(not hasattr(torch.distributed, "broadcast"), reason="no torch.distributed")
def test_writes_of_other_processes_and_collectives_give_right_rows(tmp_path):
    completed = run_program(f"PATH = {str(tmp_path / 'store')!r}\n" + PROCESSES)
    assert completed.stdout.split() == ["True"] * 3, completed.stderr
