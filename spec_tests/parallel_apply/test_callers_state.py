"""The modules of parallel_apply run with the caller's state. In the reference they do not.

PA-1: autocast. PA-2: inference mode. PA-7: missing devices. PA-8: context variables and the
default device.
"""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import capabilities
from spec_tests.parallel_apply.run_modules import Lambda, run
from spec_tests.strategies.probe_modules import CurrentDevice
from spec_tests.strategies.thread_state import (
    AUTOCASTS,
    CURRENT_DEVICE,
    Autocast,
    ThreadState,
    state_probes,
    thread_states,
    visible_states,
)

COUNTS = st.integers(1, 4)
BFLOAT16 = ThreadState(autocast=Autocast(torch.bfloat16, cache=False))
CPU_AUTOCAST = ThreadState(cpu_autocast=Autocast(torch.float16))
INFERENCE = ThreadState(inference=True)
IN_CONTEXT = ThreadState(context_value="set")
ON_DEVICE = ThreadState(default_slot=1)


class ProductDtype(nn.Module):
    """A module that returns the dtype of a matrix product, which autocast changes."""

    def forward(self, x):
        return (x @ x).dtype


def found_and_expected(target, topology, state, count):
    with state.entered(topology):
        expected = visible_states(topology.take(count))
        return run(target, topology, state_probes(topology, count)), expected


@clause("divergences.PA-1.autocast-reaches-the-modules")
@example(state=BFLOAT16, count=2)
@example(state=CPU_AUTOCAST, count=2)
@given(state=st.builds(ThreadState, autocast=AUTOCASTS, cpu_autocast=AUTOCASTS), count=COUNTS)
def test_modules_have_the_callers_autocast(target, topology, state, count):
    found, expected = found_and_expected(target, topology, state, count)
    checks.same(found, expected, state)


@clause("divergences.PA-1.autocast-reaches-the-modules")
def test_modules_compute_in_the_callers_autocast_dtype(target, topology):
    capabilities.require("autocast")
    inputs = [torch.ones(2, 2, device=device) for device in topology.take(2)]
    devices = [x.device.index for x in inputs]
    with torch.autocast(topology.accelerator, dtype=torch.bfloat16):
        found = target.parallel_apply.parallel_apply([ProductDtype()] * 2, inputs, None, devices)
    assert found == [torch.bfloat16] * 2


@clause("divergences.PA-2.inference-mode-reaches-the-modules")
@example(count=2)
@given(count=COUNTS)
def test_modules_run_in_the_callers_inference_mode(target, topology, count):
    found, expected = found_and_expected(target, topology, INFERENCE, count)
    checks.same(found, expected)


@clause("divergences.PA-2.inference-mode-reaches-the-modules")
def test_replicas_make_inference_tensors_if_grad_mode_is_on_too(target, topology):
    module, x = nn.Linear(2, 2).to(topology.device(0)), torch.ones(4, 2).to(topology.device(0))
    states = []
    module.register_forward_hook(lambda *args: states.append(args[-1].is_inference()))
    net = target.data_parallel.DataParallel(module, topology.take(2))
    with torch.inference_mode(), torch.enable_grad():
        found, expected = net(x), module(x)
    checks.same(found, expected, tolerance=checks.LAYER)
    assert states == [True] * 3


@clause("divergences.PA-7.devices-follow-the-inputs")
@pytest.mark.parametrize("devices", [None, [None] * 3], ids="devices={}".format)
@pytest.mark.parametrize("keywords", [False, True], ids="keywords={}".format)
def test_a_module_without_device_runs_on_the_device_of_its_first_tensor(
    target, topology, keywords, devices
):
    topology.require(distinct=2)
    tensors = [torch.ones(1, device=topology.device(slot)) for slot in (1, 0, 1)]
    inputs = [() if keywords else [None, {"x": [tensor]}] for tensor in tensors]
    named = [{"x": tensor} if keywords else {} for tensor in tensors]
    found = target.parallel_apply.parallel_apply([CurrentDevice()] * 3, inputs, named, devices)
    assert found == [tensor.device.index for tensor in tensors]


@clause("divergences.PA-8.context-reaches-the-modules")
@example(state=IN_CONTEXT, count=2)
@example(state=ON_DEVICE, count=2)
@example(state=ThreadState(default_slot=CURRENT_DEVICE), count=2)
@given(state=thread_states(), count=COUNTS)
def test_modules_see_the_state_of_the_caller_in_this_call_only(target, topology, state, count):
    default_state = visible_states(topology.take(count))
    found, expected = found_and_expected(target, topology, state, count)
    checks.same(found, expected, state)
    checks.same(run(target, topology, state_probes(topology, count)), default_state)


@clause("divergences.PA-8.compiler-settings-reach-the-modules")
def test_modules_see_the_callers_settings_of_the_compiler(target, topology):
    import torch._dynamo  # takes a second

    with torch._dynamo.config.patch(suppress_errors=True):
        module = Lambda(lambda: torch._dynamo.config.suppress_errors)
        found = run(target, topology, [module, module])
    assert found == [True, True]
