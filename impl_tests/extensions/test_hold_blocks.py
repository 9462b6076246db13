"""impl._replica_cache: steps of optimizers, interrupts, signals and forks in a block."""

import os
import subprocess
import sys
import threading
from operator import methodcaller

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW

import impl
from impl import _replica_cache
from impl_tests.extensions.kept_modules import UnversionedSGD, wrapped
from spec_tests import checks
from spec_tests.checks.threads import call_in_thread
from spec_tests.machine.processes import run_program


class Subclass(SGD):
    def step(self, closure=None):
        return super().step(closure)


def aliases(module):
    alias = nn.Parameter(module.weight.data)
    alias.grad = module.weight.grad
    return [alias]


OPTIMIZERS = SGD, Adam, AdamW, Adagrad, Subclass, UnversionedSGD
#: For each name of a step: the arguments of the test that it changes.
STEPS = {
    **{kind.__name__: {"kind": kind} for kind in OPTIMIZERS},
    "thread": {"step": lambda optimizer: call_in_thread(optimizer.step)},
    "compiled": {"step": lambda optimizer: torch.compile(optimizer.step, backend="eager")()},
    "a tensor with the memory of a parameter": {"parameters_of": aliases},
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # From torch.compile.
@pytest.mark.parametrize("changed", STEPS.values(), ids=STEPS)
def test_a_step_without_a_new_version_gives_new_rows(changed):
    """No sampled element changes: the hook alone shows the step."""
    arguments = {
        "kind": SGD,
        "parameters_of": nn.Module.parameters,
        "step": methodcaller("step"),
    } | changed
    module = nn.Linear(2, 64, bias=False)
    module.weight.grad = torch.zeros_like(module.weight)
    module.weight.grad[2, 1] = 1  # A sample of 128 elements has each eighth one.
    net, x = impl.DataParallel(module, ["cpu"] * 2), torch.ones(4, 2)
    optimizer = arguments["kind"](arguments["parameters_of"](module), lr=0.1, fused=True)
    with torch.no_grad(), net.hold():
        net(x)
        arguments["step"](optimizer)
        for _ in range(2):
            checks.same(net(x), module(x), tolerance=checks.LAYER)


def test_a_step_on_inference_tensors_gives_new_rows():
    with torch.inference_mode():
        net, x = impl.DataParallel(nn.Linear(2, 1), ["cpu"] * 2), torch.ones(4, 2)
        net.module.weight.grad = torch.ones(1, 2)
        with net.hold():
            net(x)
            SGD([net.module.weight], lr=0.1).step()
            checks.same(net(x), net.module(x), tolerance=checks.LAYER)


def test_a_step_of_other_parameters_builds_no_replicas(topology):
    created = []
    net, x = wrapped(topology, created)
    others = [nn.Parameter(torch.ones(size)) for size in (0, 1)]
    for other in others:
        other.grad = torch.ones_like(other)
    net.module.register_parameter("empty", nn.Parameter(torch.ones(0).to(x)))
    with torch.no_grad(), net.hold():
        net(x)
        SGD(others, lr=0.1).step()
        net(x)
    assert len(created) == 1


class CallsItself(impl.DataParallel):
    """A wrapper that is called while it is called, as by a signal handler."""

    is_handled = False

    def replicate(self, module, device_ids):
        if not self.is_handled:
            self.is_handled = True
            self.inner = self(torch.ones(4, 2, device=self.src_device_obj))
        return super().replicate(module, device_ids)


def test_a_wrapper_may_be_called_while_its_replicas_are_built(topology):
    net = CallsItself(nn.Linear(2, 2).to(topology.device(0)), topology.take(2))
    x = torch.ones(4, 2, device=topology.device(0))
    outputs = []

    def run():
        with torch.no_grad(), net.hold():
            outputs.append(net(x))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert len(outputs) == 1
    torch.testing.assert_close(outputs[0], net.inner)


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("name", ["__enter__", "__exit__"])
def test_an_interrupt_of_either_end_of_the_block_frees_the_replicas(name, is_done, monkeypatch):
    wrapper = nn.Identity()
    block = _replica_cache.keep_replicas(wrapper)
    kind = type(block)
    original = getattr(kind, name)

    def interrupt(*args):
        monkeypatch.setattr(kind, name, original)
        if is_done:
            original(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(kind, name, interrupt)
    with pytest.raises(KeyboardInterrupt), block:
        pass
    del block  # An interrupt may come before the first statement of `__exit__`.
    assert _replica_cache.ReplicaCache.find_active(wrapper) is None


FORK = """
import os, signal, threading
import torch
from torch import nn
import impl
from impl import _replica_cache

def take_the_lock():
    with kept.lock:
        is_held.set()
        is_forked.wait()

net, x = impl.DataParallel(nn.Linear(2, 2), ["cpu"] * 2), torch.ones(4, 2)
with net.hold():
    kept = _replica_cache.ReplicaCache.find_active(net)
is_held, is_forked = threading.Event(), threading.Event()
threading.Thread(target=take_the_lock).start()
is_held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    with torch.no_grad(), net.hold():
        net(x)
        os._exit(0)
is_forked.set()
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no forks")
def test_a_forked_child_can_hold_if_another_thread_held_the_lock():
    assert run_program(FORK).stdout == "0\n"


#: A program that ends in a block, after a change that no version shows.
OPEN_BLOCK = """
import impl
import torch
from torch import nn

net = impl.DataParallel(nn.Linear(2, 2), device_ids=["cpu", "cpu"])
torch.set_grad_enabled(False)
block = net.hold()
block.__enter__()
for _ in range(2):
    net(torch.ones(2, 2))
net.module.weight.data.zero_()
net(torch.ones(2, 2))
"""


def test_a_program_can_end_in_a_block_and_warns_of_a_hidden_change():
    # `run_program` would end the process without freeing the objects of Python.
    command = [sys.executable, "-c", OPEN_BLOCK]
    completed = subprocess.run(command, capture_output=True, text=True)
    assert "RuntimeWarning: 'weight' has changed" in completed.stderr
    assert completed.returncode == 0
