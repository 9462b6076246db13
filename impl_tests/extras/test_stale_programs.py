"""Programs that write in place while copies are kept give right rows, or end in an error."""

import copy

import pytest
import torch
from torch import nn

import impl
from spec_tests.harness.environment.scripts import run_program

X = torch.arange(8.0).reshape(4, 2)


class Statistics(nn.Module):
    """A module that writes statistics in eval mode, and adds those of the forward before."""

    def __init__(self, write):
        super().__init__()
        self.write = write
        for name in ("mean", "variance"):
            self.register_buffer(name, torch.ones(2))
        for name in ("low", "high", "scale"):
            self.register_buffer(name, torch.ones(1))
        self.register_buffer("zero", torch.zeros(1, dtype=torch.int))

    def forward(self, x):
        y = x + self.mean + self.variance + self.low + self.high
        self.write(self, x)
        return y


def observe(module, x):
    """Observe as the layers of quantization-aware training do."""
    on = torch.ones(1, dtype=torch.long)
    torch.fused_moving_avg_obs_fake_quant(
        x, on, on, module.low, module.high, module.scale, module.zero, 0.5, 0, 255, 0
    )


def average_codebook(module, x):
    module.mean.data.mul_(0.5).add_(x.mean(0))


WRITERS = pytest.mark.parametrize("write", [observe, average_codebook])


def run(net):
    """Return the rows of three forwards, and those of the module."""
    found, expected = [], []
    with torch.no_grad():
        for _ in range(3):
            expected.append(copy.deepcopy(net.module)(X))
            found.append(net(X))
    return found, expected


@WRITERS
def test_statistics_written_in_eval_mode_are_an_error_in_a_hold_block(write):
    net = impl.DataParallel(Statistics(write).eval(), ["cpu"] * 2)
    with pytest.raises(RuntimeError, match="may be those of old values"), net.hold():
        run(net)


@WRITERS
def test_statistics_written_in_eval_mode_give_right_rows_beside_frozen_parameters(write):
    net = impl.DataParallel(Statistics(write).eval(), ["cpu"] * 2, cache_frozen_parameters=True)
    torch.testing.assert_close(*run(net))


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
