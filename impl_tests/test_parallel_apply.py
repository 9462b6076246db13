"""impl.parallel_apply: the threads that run the modules, and traces."""

import importlib
import threading

import pytest
import torch
from torch import nn
from torch.overrides import BaseTorchFunctionMode

from impl import parallel_apply

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
    with BaseTorchFunctionMode():
        assert run_on_the_cpu(threading.get_ident, in_turn=in_turn) == [threading.get_ident()]


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_trace_may_record_one_module(topology):
    device = topology.device(0)
    module, x = nn.Linear(2, 2).to(device).requires_grad_(False), torch.ones(3, 2, device=device)
    traced = torch.jit.trace(lambda x: parallel_apply([module], [(x,)])[0], x)
    torch.testing.assert_close(traced(2 * x), module(2 * x))
