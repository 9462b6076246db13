"""impl.replicate: script modules, and an undocumented function that copies tensors."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn

from impl.replicate import _broadcast_coalesced_reshape, _replicatable_module

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")


def scripted():
    return torch.jit.script(nn.Sequential(nn.Linear(2, 2)))


@contextmanager
def without_torchscript():
    torch.jit._state.disable()
    try:
        yield
    finally:
        torch.jit._state.enable()


def test_a_script_module_with_a_python_child_is_replicatable_without_torchscript():
    module = scripted()
    module._modules = {"child": nn.Linear(2, 2)}
    assert not _replicatable_module(module)
    with without_torchscript():
        assert _replicatable_module(module)


def test_a_child_that_is_none_is_no_python_child():
    module = scripted()
    module._modules = {"child": None}
    assert _replicatable_module(module)


def test_copies_have_gradients_by_default(topology):
    x = torch.ones(2, device=topology.device(0), requires_grad=True)
    for (copy,) in _broadcast_coalesced_reshape([x], topology.take(2)):
        copy.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2))
