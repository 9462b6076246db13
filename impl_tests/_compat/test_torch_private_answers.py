"""impl._compat.torch_private: the state of threads, modules and leaves."""

import sys

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules import module as registration
from torch.utils._python_dispatch import TorchDispatchMode

from impl._compat import torch_private
from impl_tests.samples import FunctionMode


class DispatchMode(TorchDispatchMode):
    """A mode that is only there."""


def test_modes_are_counted_and_told_apart():
    with FunctionMode():
        assert torch_private.function_mode_count() == 1
        assert not torch_private.has_dispatch_modes()
    with DispatchMode():
        assert torch_private.has_dispatch_modes()
        assert torch_private.function_mode_count() == 0
    assert not torch_private.has_dispatch_modes()


def test_hooks_on_saved_tensors_are_seen():
    assert not torch_private.has_saved_tensor_hooks()
    with saved_tensors_hooks(lambda x: x, lambda x: x):
        assert torch_private.has_saved_tensor_hooks()


def test_hooks_on_saved_tensors_are_seen_while_something_is_traced():
    with saved_tensors_hooks(lambda x: x, lambda x: x):
        torch._C._autograd._saved_tensors_hooks_set_tracing(True)
        try:
            assert torch_private.has_saved_tensor_hooks()
        finally:
            torch._C._autograd._saved_tensors_hooks_set_tracing(False)


def test_transforms_are_seen():
    seen = []
    torch.func.vmap(lambda x: seen.append(torch_private.has_transforms()) or x)(torch.ones(2))
    assert [*seen, torch_private.has_transforms()] == [True, False]


@pytest.mark.parametrize("kind", ["module", "parameter", "buffer"])
def test_who_watches_registrations_is_seen(kind):
    watch = getattr(registration, f"register_module_{kind}_registration_hook")
    handle = watch(lambda *_: None)
    assert torch_private.is_registration_watched()
    handle.remove()
    assert not torch_private.is_registration_watched()


def test_a_module_that_is_not_compiled_is_told_from_one_that_is(monkeypatch):
    class Compiled(nn.Module):
        pass

    class Frames:
        OptimizedModule = Compiled

    monkeypatch.setitem(sys.modules, "torch._dynamo.eval_frame", Frames)
    assert torch_private.is_compiled(Compiled)
    assert not torch_private.is_compiled(nn.Module)
    monkeypatch.delitem(sys.modules, "torch._dynamo.eval_frame")
    assert not torch_private.is_compiled(Compiled)


def test_the_compiled_module_is_given():
    plain, wrapper = nn.Linear(1, 1), nn.Module()
    assert torch_private.compiled_module(plain) is None
    wrapper._orig_mod = plain
    assert torch_private.compiled_module(wrapper) is None
    wrapper.__dict__["_torchdynamo_orig_callable"] = plain
    assert torch_private.compiled_module(wrapper) is plain


@pytest.mark.parametrize("enabled", [True, False])
def test_torchscript_is_on_or_off(monkeypatch, enabled):
    monkeypatch.setattr(torch.jit._state, "_enabled", enabled)
    assert torch_private.is_torchscript_on() is enabled


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_a_leaf_are_seen(register):
    leaf = torch.ones(1, requires_grad=True)
    assert not torch_private.has_hooks(leaf)
    getattr(leaf, register)(lambda _: None)
    assert torch_private.has_hooks(leaf)


def asked_in_backward(leaf, run):
    """What is said of ``leaf`` while ``run`` goes back through it and through another."""
    used, found = torch.ones(1, requires_grad=True), []
    product = leaf * used
    product.register_hook(lambda _: found.append(torch_private.is_wanted_in_backward(leaf)))
    run(product, leaf, used)
    return found


@pytest.mark.parametrize(
    ("run", "wanted"),
    [
        (lambda product, leaf, used: product.backward(), True),
        (lambda product, leaf, used: product.backward(inputs=[leaf]), True),
        (lambda product, leaf, used: product.backward(inputs=[used]), False),
        (lambda product, leaf, used: torch.autograd.grad(product, leaf), True),
        (lambda product, leaf, used: torch.autograd.grad(product, used), False),
    ],
    ids=["backward", "backward to it", "backward elsewhere", "grad", "grad elsewhere"],
)
def test_a_leaf_is_wanted_where_its_gradient_is_asked_for(run, wanted):
    assert asked_in_backward(torch.ones(1, requires_grad=True), run) == [wanted]


def test_nodes_are_told_from_older_ones():
    x = torch.ones(1, requires_grad=True)
    old = (2 * x).grad_fn
    number = torch_private.next_node_number()
    new = (2 * x).grad_fn
    assert [torch_private.was_made_since(number, each) for each in (old, new)] == [False, True]


def test_what_backward_runs_first_is_not_told_from_older_nodes():
    x = torch.ones(1, requires_grad=True)
    number = torch_private.next_node_number()
    first = (2 * x).grad_fn
    torch_private.run_first_in_backward(first)
    accumulation = first.next_functions[0][0]
    for each in (first, accumulation):
        assert not torch_private.was_made_since(number, each)


@pytest.mark.parametrize("call", [len, lambda *_: None, object()], ids=["C", "plain", "object"])
def test_another_call_in_place_of_the_modules_does_not_say_how_to_compile(call):
    module = nn.Identity()
    module.__dict__["_compiled_call_impl"] = call
    assert torch_private.compilation_in_place(module) is None


def test_outside_of_backward_there_is_no_context_to_copy():
    assert not torch._C._is_key_in_tls("context")
    torch_private.copy_context_of_backward()
    assert not torch._C._is_key_in_tls("context")


def test_changes_in_place_are_counted_for_each_tensor():
    tensor = torch.ones(1)
    with torch.inference_mode():
        uncounted = torch.ones(1)
    before = torch_private.version_counters([tensor, None])
    assert torch_private.version_counters([tensor]) == before[:1]
    tensor.add_(1)
    assert torch_private.version_counters([tensor, None]) == [before[0] + 1, None]
    first, last = (torch_private.version_counters([uncounted, None]) for _ in range(2))
    assert (first[0] == last[0], first[1], last[1]) == (False, None, None)
