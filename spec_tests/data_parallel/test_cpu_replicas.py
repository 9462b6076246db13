"""Replicas of DataParallel on the CPU, which the reference refuses: DP-1."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.checks import wrapper_laws as laws
from spec_tests.machine.clauses import clause
from spec_tests.machine.processes import run_script, run_without_accelerator
from spec_tests.strategies.calls import DeviceAt
from spec_tests.strategies.data_parallel import DataParallelCall, network_calls
from spec_tests.strategies.modules import Layer, ModuleSpec
from spec_tests.strategies.small_modules import FailsFromLimit

LINEAR = ModuleSpec((Layer("linear"),))
HALF_LINEAR = ModuleSpec((Layer("linear"),), torch.float16)
CPU_CALL, HALF_CALL = (
    DataParallelCall(net, (net.rows(4, slot=None),), devices=[DeviceAt(None)] * 2)
    for net in (LINEAR, HALF_LINEAR)
)


@clause("divergences.DP-1.cpu-devices")
@example(call=CPU_CALL, autocast=False)
@example(call=HALF_CALL, autocast=True)  # Some operators refuse float16 in this region.
@given(call=network_calls(grads=(True,), slots=(None,)), autocast=st.just(False))
def test_replicas_compute_on_the_cpu(target, topology, call, autocast):
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found, expected = laws.run_wrapped_and_plain(call, target, topology)
    checks.same(found, expected, call, tolerance=1e-2 if autocast else checks.LAYER)


@clause("divergences.DP-1.cpu-devices")
def test_an_error_of_a_cpu_replica_is_rewrapped(target):
    with pytest.raises(KeyError) as caught:
        target.data_parallel.DataParallel(FailsFromLimit(2), ["cpu", "cpu"])(torch.arange(4.0))
    assert str(caught.value).startswith("Caught KeyError in replica 1 on device cpu.\n")


@clause("divergences.DP-1.cpu-devices")
def test_cpu_replicas_work_without_an_accelerator(target):
    done = run_without_accelerator(
        """
        module, x = nn.Linear(2, 1), torch.ones(4, 2)
        for devices in (["cpu"], ["cpu", "cpu"]):
            wrapped = target.data_parallel.DataParallel(module, devices)
            print(torch.equal(wrapped(x), module(x)), len(wrapped.device_ids))
            found = target.data_parallel.data_parallel(module, x, devices)
            print(torch.equal(found, module(x)))
        """,
        target,
    )
    assert done.stdout.splitlines() == ["True 1", "True", "True 2", "True"], done.stderr


@clause("divergences.DP-1.accelerator-left-alone")
@pytest.mark.parametrize("count", [1, 4], ids="replicas={}".format)
def test_cpu_replicas_work_in_a_data_loader_worker(target, topology, count):
    done = run_script(
        f"""
        from torch.utils.data import DataLoader

        class Saliency:  # Its samples are gradients.
            def __init__(self):
                net = nn.Linear(2, 1)
                nn.init.constant_(net.weight, 3.0)
                self.wrapped = target.data_parallel.DataParallel(net, ["cpu"] * {count})

            def __len__(self):
                return 2

            def __getitem__(self, index):
                x = torch.ones(4, 2, requires_grad=True)
                self.wrapped(x).sum().backward()
                return x.grad

        print(torch.ones(2, device=topology.device(0)).sum().item())
        loader = DataLoader(Saliency(), num_workers=1, multiprocessing_context="fork")
        for batch in loader:
            print(batch.flatten().tolist() == [3.0] * 8)
        """,
        target,
        topology,
    )
    # A back end may print more.
    printed = [line for line in done.stdout.splitlines() if line in ("2.0", "True", "False")]
    assert printed == ["2.0", "True", "True"], done.stderr
