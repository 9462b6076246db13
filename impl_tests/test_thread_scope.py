"""impl._thread_state: what there is to look at, and when nothing is to be done."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from impl import _devices, _thread_state


@pytest.fixture
def tracing():
    """Hooks on saved tensors are not applied, as while a graph is traced."""
    torch._C._autograd._saved_tensors_hooks_set_tracing(True)
    yield
    torch._C._autograd._saved_tensors_hooks_set_tracing(False)


def test_without_an_accelerator_the_cpu_is_all_there_is(monkeypatch):
    monkeypatch.setattr(_thread_state, "accelerator_type", lambda: None)
    assert _thread_state._scope([torch.device("sim:0")]) == (("cpu",), range(0))


@pytest.mark.parametrize("kind", ["cpu", "sim"])
def test_every_device_of_an_accelerator_in_use_is_looked_at(topology, kind):
    ordinals = range(torch.accelerator.device_count())
    scope = _thread_state._scope([torch.device(kind)])
    assert scope == (("cpu", topology.accelerator), ordinals)


def test_an_accelerator_that_is_not_in_use_is_not_asked_for_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.sim, "is_initialized", lambda: False)
    cpu, other = torch.device("cpu"), torch.device("sim", 0)
    assert _thread_state._scope([cpu, cpu]) == (("cpu",), range(0))
    assert _thread_state._scope([cpu, other]).ordinals


def test_an_accelerator_that_cannot_tell_is_not_in_use(monkeypatch):
    monkeypatch.delattr(torch.sim, "is_initialized")
    assert _devices.accelerator_in_use() is None


def test_no_accelerator_is_not_in_use(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    assert _devices.accelerator_in_use() is None


def test_a_default_device_that_is_not_wanted_is_not_entered():
    wanted = _thread_state._read_flags(_thread_state._scope([torch.device("cpu")]))
    before = wanted._replace(default_device=torch.device("meta"))
    with _thread_state._enter_contexts(before, wanted):
        assert torch.ones(1).device.type == "cpu"


def test_hooks_on_saved_tensors_stay_behind_while_a_graph_is_traced(tracing):
    with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        assert not _thread_state.travels_whole()
    assert _thread_state.travels_whole()
