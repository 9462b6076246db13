"""impl.parallel_apply: the threads that run the modules, traces, and notes of errors."""

import importlib
import threading

import pytest
import torch
from torch import nn

import impl
from impl import DataParallel, parallel_apply
from impl_tests.helpers.modes import FunctionMode

#: The module ``impl.parallel_apply``. The attribute ``parallel_apply`` of impl is the function.
MODULE = importlib.import_module("impl.parallel_apply")


def run_on_the_cpu(*functions, **options):
    count = len(functions)
    return MODULE.parallel_apply(functions, [()] * count, devices=["cpu"] * count, **options)


@pytest.mark.parametrize("in_turn", [False, True], ids="in_turn={}".format)
@pytest.mark.parametrize("compiled", [False, True], ids="compiled={}".format)
def test_single_module_runs_in_the_calling_thread_while_a_mode_is_active(
    in_turn, compiled, monkeypatch
):
    monkeypatch.setattr(MODULE, "has_compiled_code", lambda module: compiled)
    with FunctionMode():
        assert run_on_the_cpu(threading.get_ident, in_turn=in_turn) == [threading.get_ident()]


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_trace_may_record_one_module(topology):
    device = topology.device(0)
    module, x = nn.Linear(2, 2).to(device).requires_grad_(False), torch.ones(3, 2, device=device)
    traced = torch.jit.trace(lambda x: parallel_apply([module], [(x,)])[0], x)
    torch.testing.assert_close(traced(2 * x), module(2 * x))


@pytest.mark.parametrize("in_turn", [False, True], ids="in_turn={}".format)
def test_error_of_batch_norm_has_a_note_with_the_shape_of_the_chunk(in_turn):
    wrapper = DataParallel(nn.BatchNorm1d(2), ["cpu", "cpu"], in_turn=in_turn)
    with pytest.raises(ValueError, match="in replica 1 on device cpu") as caught:
        wrapper(torch.randn(3, 2))
    (note,) = caught.value.__notes__
    assert note.startswith("Replica 1 got a tensor of shape (1, 2).")
    assert note not in str(caught.value)


@pytest.mark.parametrize("call", ["wrapper", "replicate"])
def test_a_replica_that_is_replicated_from_another_device_is_refused_with_a_note(topology, call):
    devices = topology.take(2)
    topology.require(distinct=2)

    class Replicating(nn.Linear):
        def forward(self, x):
            return impl.replicate(self, devices)[0].extra_repr()

    module = Replicating(2, 2) if call == "replicate" else DataParallel(nn.Linear(2, 2), devices)
    with pytest.raises(RuntimeError, match="in replica 1 on device") as caught:
        DataParallel(module.to(devices[0]), devices)(torch.ones(2, 2))
    assert caught.value.__notes__[-1].startswith(f"Replica 1 and its tensors are on {devices[1]}.")


def test_another_value_error_of_a_replica_has_no_note():
    wrapper = DataParallel(nn.BatchNorm1d(2), ["cpu", "cpu"])
    with pytest.raises(ValueError, match="expected 2D or 3D input") as caught:
        wrapper(torch.randn(3))
    assert not hasattr(caught.value, "__notes__")
