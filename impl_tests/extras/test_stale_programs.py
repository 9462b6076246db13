"""Programs that change a module while copies are kept give right rows, or end in an error."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim import Adam

import impl
from impl_tests.samples import run_python

X = torch.arange(8.0).reshape(4, 2)


class Lora(nn.Module):
    """A frozen layer with two low-rank adapters, as peft and loralib have them."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(2, 2).requires_grad_(False)
        self.down = nn.ParameterDict({name: torch.randn(1, 2) for name in ("first", "second")})
        self.up = nn.ParameterDict({name: torch.randn(2, 1) for name in ("first", "second")})
        self.active, self.disabled, self.merged = "first", False, []

    def forward(self, x):
        y = self.base(x)
        if self.disabled or self.merged:
            return y
        return y + x @ self.delta().mT

    def delta(self):
        return self.up[self.active] @ self.down[self.active]


class Classifier(nn.Sequential):
    """Layers, and a temperature."""

    def __init__(self):
        super().__init__(Lora(), nn.Dropout(1.0), nn.Linear(2, 2))
        self.temperature = 1.0

    def forward(self, x):
        y = self[0](x)
        return (self[2](y) + self[1](y)) / self.temperature


class Negated(Classifier):
    """Another class for the same layers."""

    def forward(self, x):
        return -super().forward(x)


def set_temperature(net):
    net.temperature = 2.0


def switch_dropout_off(net):
    net[1].p = 0.0


def set_forward(net):
    net[2].forward = torch.square


def set_class(net):
    net.__class__ = Negated


def remove_hook(net):
    net.handle.remove()


def disable_adapter(net):
    net[0].disabled = True


def set_adapter(net):
    net[0].active = "second"


def merge_adapter(net):
    """Merge as peft's ``merge_adapter`` and loralib's ``eval()`` do."""
    net[0].base.weight.data += net[0].delta()
    net[0].merged = [net[0].active]


def merge_in_silence(net):
    net[0].base.weight.data += net[0].delta()


def merge_and_unload(net):
    net[0].base.weight.data += net[0].delta()
    net[0] = net[0].base


def synchronize_reference(net):
    """Move towards a policy, as trl's SyncRefModelCallback does."""
    for parameter in net.parameters():
        parameter.data.mul_(0.5).add_(torch.ones_like(parameter), alpha=0.5)


def copy_average(net):
    """Copy an average of weights, as torch_ema's ``copy_to`` does."""
    for parameter in net.parameters():
        parameter.data.copy_(torch.full_like(parameter, 0.5))


def step_fused_adam(net):
    optimizer = Adam(net.parameters(), fused=True, lr=0.1)
    optimizer.register_step_post_hook(lambda each, *_: each.zero_grad(set_to_none=True))
    flags = [parameter.requires_grad for parameter in net.parameters()]
    net.requires_grad_()
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for parameter, flag in zip(net.parameters(), flags, strict=True):
        parameter.requires_grad_(flag)


def change_vector(net):
    vector = parameters_to_vector(net.parameters())
    vector_to_parameters(vector, net.parameters())
    yield
    vector.add_(1)


def restore_average(net):
    """Copy an average of weights, and restore the weights afterwards, as torch_ema does."""
    stored = [parameter.detach().clone() for parameter in net.parameters()]
    copy_average(net)
    yield
    for parameter, each in zip(net.parameters(), stored, strict=True):
        parameter.data.copy_(each)


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


def adapt_batch_norm(module, x):
    functional.batch_norm(x, module.mean, module.variance, training=True)


def observe(module, x):
    """Observe as the layers of quantization-aware training do."""
    on = torch.ones(1, dtype=torch.long)
    torch.fused_moving_avg_obs_fake_quant(
        x, on, on, module.low, module.high, module.scale, module.zero, 0.5, 0, 255, 0
    )


def average_codebook(module, x):
    module.mean.data.mul_(0.5).add_(x.mean(0))


def run(module, change, mode):
    """Run forwards before, while and after ``change`` is in effect, and compare the rows."""
    net = impl.DataParallel(module, ["cpu"] * 2, cache_frozen_parameters=mode == "frozen")
    found, expected = [], []

    def forward():
        expected.append(copy.deepcopy(net.module)(X))
        found.append(net(X))

    with torch.no_grad(), net.hold() if mode == "hold" else nullcontext():
        forward()
        for _ in change(net.module) or [None]:
            forward()
        forward()
    torch.testing.assert_close(found, expected)


def build(mode):
    torch.manual_seed(0)
    net = Classifier().requires_grad_(mode == "hold")
    net.handle = net[2].register_forward_hook(lambda *args: args[-1] + 1)
    return net


by_name = {"ids": lambda each: each.__name__}
REFUSED = pytest.raises(RuntimeError, match="may be those of old values")


@pytest.mark.parametrize(
    "change",
    [
        set_temperature,
        switch_dropout_off,
        set_forward,
        set_class,
        remove_hook,
        disable_adapter,
        set_adapter,
        merge_adapter,
        merge_and_unload,
        step_fused_adam,
    ],
    **by_name,
)
def test_a_change_in_a_hold_block_gives_right_rows(change):
    run(build("hold"), change, "hold")


HIDDEN = [merge_in_silence, synchronize_reference, copy_average, restore_average, change_vector]


@pytest.mark.parametrize("change", HIDDEN, **by_name)
def test_a_hidden_change_in_a_hold_block_is_an_error(change):
    with REFUSED:
        run(build("hold"), change, "hold")


@pytest.mark.parametrize(
    "change", [*HIDDEN, merge_adapter, merge_and_unload, step_fused_adam], **by_name
)
def test_a_change_of_frozen_parameters_gives_right_rows(change):
    run(build("frozen"), change, "frozen")


WRITERS = pytest.mark.parametrize("write", [adapt_batch_norm, observe, average_codebook])


@WRITERS
def test_statistics_written_in_eval_mode_are_an_error_in_a_hold_block(write):
    with REFUSED:
        run(Statistics(write).eval(), lambda _: None, "hold")


@WRITERS
def test_statistics_written_in_eval_mode_give_right_rows_beside_frozen_parameters(write):
    run(Statistics(write).eval(), lambda _: None, "frozen")


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
    completed = run_python(f"PATH = {str(tmp_path / 'store')!r}\n" + PROCESSES)
    assert completed.stdout.split() == ["True"] * 3, completed.stderr
