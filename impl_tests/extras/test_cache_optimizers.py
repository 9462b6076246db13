"""impl.extras: steps of optimizers while replicas are cached."""

import copy
import os
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW
from torch.optim.optimizer import register_optimizer_step_post_hook

import impl
from impl.extras import registry
from impl.extras.module_state import ModuleSnapshot
from impl_tests.samples import run_python
from spec_tests.divergences.frozen_layers import UnversionedSGD


class Subclass(SGD):
    """An optimizer whose step calls the step of its base class."""

    def step(self, closure=None):
        return super().step(closure)


def step_in_another_thread(optimizer):
    thread = threading.Thread(target=optimizer.step)
    thread.start()
    thread.join()


def step_of_a_copy(optimizer, duplicate):
    copied = duplicate(optimizer)
    # The copy has parameters of its own.
    copied.param_groups[0]["params"] = optimizer.param_groups[0]["params"]
    copied.step()


WAYS = {
    "thread": step_in_another_thread,
    "deepcopy": lambda optimizer: step_of_a_copy(optimizer, copy.deepcopy),
    "pickle": lambda optimizer: step_of_a_copy(
        optimizer, lambda each: pickle.loads(pickle.dumps(each))
    ),
    "compiled": lambda optimizer: torch.compile(optimizer.step, backend="eager")(),
}


def held_linear():
    module = nn.Linear(2, 1)
    module(torch.ones(4, 2)).sum().backward()
    return impl.DataParallel(module, ["cpu", "cpu"]), torch.ones(4, 2)


def assert_step_is_refused(parameters_of, kind=SGD, step=lambda optimizer: optimizer.step()):
    net, x = held_linear()
    optimizer = kind(parameters_of(net.module), lr=0.1, fused=True)
    with torch.no_grad(), net.hold():
        net(x)
        step(optimizer)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="Parameter 'bias' has changed since hold"):
                net(x)
    torch.testing.assert_close(net(x), net.module(x))


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW, Adagrad, Subclass, UnversionedSGD])
def test_a_step_without_a_new_version_is_refused(kind):
    assert_step_is_refused(lambda module: [module.bias], kind)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # From torch.compile.
@pytest.mark.parametrize("way", WAYS)
def test_a_step_by_any_way_is_refused(way):
    assert_step_is_refused(lambda module: [module.bias], step=WAYS[way])


def test_a_step_on_a_tensor_with_the_memory_of_a_parameter_is_refused():
    def aliases(module):
        alias = nn.Parameter(module.bias.data)
        alias.grad = module.bias.grad
        return [alias]

    assert_step_is_refused(aliases)


def test_a_step_on_inference_tensors_is_refused():
    with torch.inference_mode():
        net, x = impl.DataParallel(nn.Linear(2, 1), ["cpu", "cpu"]), torch.ones(4, 2)
        net.module.weight.grad = torch.ones(1, 2)
        with net.hold():
            net(x)
            SGD([net.module.weight], lr=0.1).step()
            with pytest.raises(RuntimeError, match="Parameter 'weight' has changed"):
                net(x)


@pytest.mark.parametrize("has_grad", [False, True], ids="has_grad={}".format)
def test_a_step_that_changes_no_parameter_is_accepted(has_grad):
    net, x = held_linear()
    others = [nn.Parameter(torch.ones(size)) for size in (0, 1)]
    for other in others:
        other.grad = torch.ones_like(other)
    net.module.register_parameter("empty", nn.Parameter(torch.ones(0)))
    optimizer = SGD(others if has_grad else [*net.module.parameters()], lr=0.1)
    if not has_grad:
        optimizer.zero_grad()
    with torch.no_grad(), net.hold():
        net(x)
        optimizer.step()
        torch.testing.assert_close(net(x), net.module(x))


def test_changes_of_sparse_parameters_are_told_apart():
    module = nn.Module()
    for name in ("first", "second"):
        module.register_parameter(name, nn.Parameter(torch.eye(2).to_sparse()))
    snapshot = ModuleSnapshot(module)
    snapshot.note_step([module.second])
    with pytest.raises(RuntimeError, match="Parameter 'second' has changed"):
        snapshot.check(module)


def step_hooks():
    """Return the hooks of the process that run after each step of an optimizer."""
    handle = register_optimizer_step_post_hook(print)
    hooks = handle.hooks_dict_ref()
    handle.remove()
    return [*hooks.values()]


def test_the_hook_exists_only_while_a_block_is_active():
    first, second = nn.Identity(), nn.Identity()
    with registry.ReplicaCacheBlock(first, ["cpu"] * 2):
        for wrapper in (first, second):
            with registry.ReplicaCacheBlock(wrapper, ["cpu"] * 2):
                assert len(step_hooks()) == 1
            assert len(step_hooks()) == 1
    assert step_hooks() == []


@pytest.mark.parametrize("name", ["_begin", "_end"])
@pytest.mark.parametrize("is_done", [False, True])
def test_an_interrupt_of_either_end_of_the_block_frees_replicas_and_hook(
    name, is_done, monkeypatch
):
    original = getattr(registry, name)

    def interrupt(*args):
        monkeypatch.setattr(registry, name, original)
        if is_done:
            original(*args)
        raise KeyboardInterrupt

    wrapper = nn.Identity()
    monkeypatch.setattr(registry, name, interrupt)
    block = registry.ReplicaCacheBlock(wrapper, ["cpu"] * 2)
    with pytest.raises(KeyboardInterrupt), block:
        pass
    assert registry.find_replica_cache(wrapper) is None
    assert step_hooks() == []


FORK = """
import os
from torch import nn
from impl.extras import registry
from impl_tests.extras.test_cache_optimizers import step_hooks

with registry.ReplicaCacheBlock(nn.Identity(), ["cpu", "cpu"]):
    child = os.fork()
    if child == 0:
        os._exit(len(step_hooks()))
    print(os.waitpid(child, 0)[1], len(step_hooks()))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no forks")
def test_a_forked_child_has_no_hook():
    assert run_python(FORK).stdout == "0 1\n"
