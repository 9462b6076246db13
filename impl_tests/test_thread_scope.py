"""impl._thread_state: what there is to look at, and when nothing is to be done."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from impl import _thread_state


@pytest.fixture
def tracing():
    """Hooks on saved tensors are not applied, as while a graph is traced."""
    torch._C._autograd._saved_tensors_hooks_set_tracing(True)
    yield
    torch._C._autograd._saved_tensors_hooks_set_tracing(False)


def test_without_an_accelerator_the_cpu_is_all_there_is(monkeypatch):
    monkeypatch.setattr(_thread_state, "accelerator_type", lambda: None)
    assert _thread_state._scope() == (("cpu",), range(0))


def test_every_device_of_the_accelerator_is_looked_at(topology):
    ordinals = range(torch.accelerator.device_count())
    assert _thread_state._scope() == (("cpu", topology.accelerator), ordinals)


def test_a_default_device_that_is_not_wanted_is_not_entered():
    wanted = _thread_state._read_flags(_thread_state._scope())
    before = wanted._replace(default_device=torch.device("meta"))
    with _thread_state._enter_contexts(before, wanted):
        assert torch.ones(1).device.type == "cpu"


def test_hooks_on_saved_tensors_stay_behind_while_a_graph_is_traced(tracing):
    with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        assert not _thread_state.travels_whole()
    assert _thread_state.travels_whole()
