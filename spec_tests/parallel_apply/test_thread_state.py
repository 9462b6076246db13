"""parallel_apply: the thread state of the caller and of the modules.

The reference does not pass on the whole state. PA-1: autocast. PA-2: inference mode. PA-7: missing
devices. PA-8: context variables and the default device. PA-10: values that replicas compute with.
"""

import threading
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from functools import partial

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from spec_tests import checks
from spec_tests.checks.casts import CastingLinear, cast_changed_parameters
from spec_tests.machine.clauses import cases, clause
from spec_tests.machine.devices import not_run
from spec_tests.parallel_apply.run_modules import Lambda, run
from spec_tests.strategies.small_modules import Calls, CurrentDevice
from spec_tests.strategies.thread_state import (
    CHANGES,
    Autocast,
    ThreadState,
    thread_states,
    visible_state,
    visible_states,
)

#: Numbers of modules in a call.
COUNTS = st.integers(1, 4)
#: Numbers of modules in a call that uses several threads.
SEVERAL = st.integers(2, 4)
ANY_CHANGES = st.lists(st.sampled_from(sorted(CHANGES)), unique=True, min_size=1)
#: For each clause: fields of the caller's `ThreadState`, all of which the modules see.
FIELDS = {
    "parallel_apply.state.grad-mode": [("grad",)],
    "parallel_apply.state.current-device": [("current_slot",)],
    # PyTorch 1.11: workers used the default stream and read inputs too early (#78824).
    "parallel_apply.state.current-stream": [("current_slot", "stream_slots")],
    "divergences.PA-1.autocast-reaches-the-modules": [("autocast", "cpu_autocast")],
    "divergences.PA-2.inference-mode-reaches-the-modules": [("inference",)],
    "divergences.PA-8.context-reaches-the-modules": [
        tuple(field.name for field in fields(ThreadState))
    ],
}
#: A state whose fields all differ from those of a new thread.
OTHER_STATE = ThreadState(
    grad=False,
    inference=True,
    autocast=Autocast(torch.bfloat16, cache=False),
    cpu_autocast=Autocast(torch.float16),
    default_slot=1,
    context_value="set",
    current_slot=1,
    stream_slots=(0, 1),
)


def states_in_modules(target, topology, count):
    """Return the state that each of ``count`` modules sees."""
    modules = [Lambda(visible_state, device) for device in topology.take(count)]
    return run(target, topology, modules)


def device_and_states(topology):
    """Return the ordinal of the current device, and the states that are visible on all devices."""
    current = torch.accelerator.current_device_index()
    return {"current device": current, "states": visible_states(topology.devices)}


def read_shared_settings():
    """Return settings that all threads share."""
    return (
        torch.get_default_dtype(),
        torch.is_anomaly_enabled(),
        torch.are_deterministic_algorithms_enabled(),
    )


class FunctionMode(TorchFunctionMode):
    """A torch-function mode that records each call of ``torch.square``."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls += ["square"] * (function is torch.square)
        return function(*args, **(kwargs or {}))


class DispatchMode(TorchDispatchMode):
    """A dispatch mode that records each ``pow``, the operator that ``torch.square`` calls."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls += ["square"] * ("pow" in str(function))
        return function(*args, **(kwargs or {}))


def saved_tensors_mode(calls):
    return torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: calls.append("saved") or tensor, lambda tensor: tensor
    )


@pytest.fixture(scope="session")
def target_with_autocast(target, topology):
    if target.name == "torch.nn.parallel" and topology.accelerator != "cuda":
        not_run("torch.nn.parallel passes on the autocast of CUDA only; see divergence PA-1")
    return target


@contextmanager
def shared_settings():
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


@cases("names", FIELDS)
@example(state=OTHER_STATE, count=2)
@given(state=thread_states(), count=COUNTS)
def test_modules_see_the_state_of_the_caller_in_this_call_only(
    target, topology, names, state, count
):
    state, default_state = state.only(names), visible_states(topology.take(count))
    with state.entered(topology):
        expected = visible_states(topology.take(count))
        checks.same(states_in_modules(target, topology, count), expected, state)
    checks.same(states_in_modules(target, topology, count), default_state)


@clause("parallel_apply.state.autocast-switch")
@given(count=COUNTS)
def test_autocast_is_enabled_in_modules_if_enabled_in_the_caller(
    target_with_autocast, topology, count
):
    with ThreadState(autocast=Autocast(torch.float16)).entered(topology):
        found = states_in_modules(target_with_autocast, topology, count)
    checks.same([each["autocast"] for each in found], [(True, torch.float16)] * count)


@clause("parallel_apply.state.shared-settings")
@given(count=COUNTS)
def test_process_wide_settings_apply_in_modules(target, topology, count):
    with shared_settings(), torch.autograd.set_detect_anomaly(True, check_nan=False):
        found = run(target, topology, [Lambda(read_shared_settings)] * count)
    checks.same(found, [(torch.float64, True, True)] * count)


@clause("parallel_apply.state.modes-stay-behind")
@pytest.mark.parametrize("mode", [FunctionMode, DispatchMode, saved_tensors_mode])
@given(count=COUNTS)
@example(count=1)
@example(count=2)
def test_modes_of_the_caller_reach_only_a_single_module(target, topology, mode, count):
    calls = []
    inputs = [torch.ones(1, device=device, requires_grad=True) for device in topology.take(count)]
    devices = [x.device.index for x in inputs]
    with mode(calls):
        # The square saves a tensor for backward.
        module = Calls(lambda _, x: torch.square(x))
        target.parallel_apply.parallel_apply([module] * count, inputs, devices=devices)
    assert bool(calls) is (count == 1)


@clause("parallel_apply.state.caller-keeps-its-own")
@given(state=thread_states(), count=COUNTS)
def test_a_call_leaves_the_callers_state_unchanged(target, topology, state, count):
    with state.entered(topology):
        before = device_and_states(topology)
        states_in_modules(target, topology, count)
        checks.same(device_and_states(topology), before)


@contextmanager
def default_device(device):
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


@clause("parallel_apply.state.default-device-stays")
@pytest.mark.parametrize("default", [None, "cpu", "meta"], ids="set={}".format)
@pytest.mark.parametrize("entered", [None, "cpu", "meta"], ids="entered={}".format)
def test_the_callers_default_device_is_kept_when_modules_set_another(
    target, topology, default, entered
):
    with default_device(default):
        expected = torch.get_default_device()
        with torch.device(entered) if entered else nullcontext():
            inside = torch.get_default_device()
            run(target, topology, [Lambda(torch.set_default_device, topology.device(1))] * 2)
            assert torch.get_default_device() == inside
        assert torch.get_default_device() == expected


@clause("parallel_apply.state.stays-in-the-module")
@given(changes=ANY_CHANGES, count=SEVERAL, error=st.none() | st.just(ValueError("failure")))
def test_the_caller_and_later_calls_do_not_see_state_changes_of_a_module(
    target, topology, changes, count, error
):
    def change_state():
        for change in changes:
            CHANGES[change](topology.device(1))
        if error is not None:
            raise error

    before = device_and_states(topology)
    expected = states_in_modules(target, topology, count)
    with nullcontext() if error is None else pytest.raises(ValueError):
        run(target, topology, [Lambda(change_state)] * count)
    checks.same(device_and_states(topology), before)
    checks.same(states_in_modules(target, topology, count), expected)


@clause("divergences.PA-2.inference-mode-reaches-the-modules")
def test_replicas_make_inference_tensors_if_grad_mode_is_on_too(target, topology):
    module, x = nn.Linear(2, 2).to(topology.device(0)), torch.ones(4, 2).to(topology.device(0))
    states = []
    module.register_forward_hook(lambda *args: states.append(args[-1].is_inference()))
    net = target.data_parallel.DataParallel(module, topology.take(2))
    with torch.inference_mode(), torch.enable_grad():
        found, expected = net(x), module(x)
    checks.same(found, expected, tolerance=checks.LAYER)
    replicas, own = states[:2], states[2:]
    assert states == [True] * 3, (
        f"outputs are inference tensors in the replicas: {replicas}, in the module: {own}"
    )


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
    expected = [tensor.device.index for tensor in tensors]
    checks.same(found, expected, f"devices={devices} for tensors on {expected}")


@clause("divergences.PA-8.compiler-settings-reach-the-modules")
def test_modules_see_the_callers_settings_of_the_compiler(target, topology):
    import torch._dynamo  # takes a second

    with torch._dynamo.config.patch(suppress_errors=True):
        module = Lambda(lambda: torch._dynamo.config.suppress_errors)
        found = run(target, topology, [module, module])
    assert found == [True, True], (
        f"torch._dynamo.config.suppress_errors is True in the caller, {found} in the replicas"
    )


class ScaledProducts(Tensor):
    """A tensor whose products are 100 times as large, unless overrides are disabled."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result * 100 if func is torch.mul else result


def products(target, topology, factor):
    """Multiply a number by ``factor`` in two modules, each in its own thread."""
    barrier = threading.Barrier(2)

    def multiply():
        barrier.wait(60)
        product = torch.mul(torch.tensor(1.2e-38), factor)
        return product.as_subclass(Tensor).view(torch.int32).item()

    return run(target, topology, [multiply] * 2)


@clause("divergences.PA-10.replicas-compute-with-the-same-values")
@pytest.mark.parametrize(
    ("earlier", "block"),
    [("caller", torch.no_grad), ("forward", torch.no_grad), ("caller", torch.enable_grad)],
    ids=["caller", "forward", "caller-before-grad-mode"],
)
def test_replicas_cast_the_current_parameters(target, topology, earlier, block):
    module = CastingLinear(topology.device(0))
    net = target.data_parallel.DataParallel(module, topology.take(2))
    if block is torch.enable_grad:  # Without `detach`, no replica has a parameter of the module.
        net.replicate = partial(target.replicate.replicate, detach=True)
    for found, expected in cast_changed_parameters(net, earlier, block):
        checks.same(found.detach(), expected)


@clause("divergences.PA-10.replicas-compute-with-the-same-values")
def test_modules_flush_the_same_denormal_numbers(target, topology):
    before = products(target, topology, 0.5)  # Threads that are kept have begun before the change.
    if not torch.set_flush_denormal(True):
        not_run("this CPU cannot flush denormal numbers")
    try:
        flushed = products(target, topology, 0.5)
    finally:
        torch.set_flush_denormal(False)
    after = products(target, topology, 0.5)
    checks.same(flushed, [0, 0])
    assert before == after
    assert 0 not in after


@clause("divergences.PA-10.replicas-compute-with-the-same-values")
def test_modules_call_the_same_overrides(target, topology):
    factor = torch.ones(()).as_subclass(ScaledProducts)
    with torch._C.DisableTorchFunctionSubclass():
        found = products(target, topology, factor)
    assert found[0] == found[1]
