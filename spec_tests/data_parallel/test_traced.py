"""torch.jit.trace of wrappers. The reference traces several devices to constants: DP-6."""

import pytest
import torch
from torch import nn

from spec_tests import checks
from spec_tests.machine.clauses import clause

pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.trace",  # torch.jit.trace is deprecated.
    # The tracer warns that the reference's results are recorded as constants.
    "ignore::torch.jit.TracerWarning",
)
EVERY_GRAD_MODE = pytest.mark.parametrize("grad", [True, False], ids="grad={}".format)


class CallRecorder(nn.Module):
    """A module that records the shape of the input of each call."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.calls = []

    def forward(self, x):
        self.calls.append(x.shape)
        return self.layer(x)


class FunctionModule(nn.Module):
    """A module whose forward calls a function with another module and the input."""

    def __init__(self, module, function):
        super().__init__()
        self.module, self.function = module, function

    def forward(self, x):
        return self.function(self.module, x)


#: For each call: a function that returns a module with this call in its forward.
CALLS = {
    "DataParallel": lambda target, module, devices: target.data_parallel.DataParallel(
        module, devices
    ),
    "data_parallel": lambda target, module, devices: FunctionModule(
        module, lambda module, x: target.data_parallel.data_parallel(module, x, devices)
    ),
    "parallel_apply": lambda target, module, devices: FunctionModule(
        module,
        lambda module, x: torch.cat(
            target.parallel_apply.parallel_apply([module] * 2, [x] * 2, None, devices[:1] * 2)
        ),
    ),
}


def wrap_with_own_steps(target, module, devices):
    """Return a wrapper whose steps call the module itself."""

    class OwnSteps(target.data_parallel.DataParallel):
        def scatter(self, inputs, kwargs, device_ids):
            return [inputs], [kwargs]

        def parallel_apply(self, replicas, inputs, kwargs):
            return [self.module(*inputs[0])]

    return OwnSteps(module, devices)


@clause("divergences.DP-6.traces-of-several-devices-are-refused")
@pytest.mark.parametrize(
    "make", [*CALLS.values(), wrap_with_own_steps], ids=[*CALLS, "overridden-steps"]
)
@EVERY_GRAD_MODE
def test_a_trace_of_several_devices_is_refused(target, topology, make, grad):
    module = CallRecorder().to(topology.device(0))
    traced = make(target, module, topology.take(2))
    with torch.set_grad_enabled(grad), pytest.raises(RuntimeError) as raised:
        torch.jit.trace(traced, torch.rand(4, 4).to(topology.device(0)), check_trace=False)
    assert "trace the module itself, which is `wrapper.module`" in str(raised.value)
    checks.same(module.calls, [])


@clause("data_parallel.one-device.traced")
@pytest.mark.parametrize("slot", [0, None], ids="slot={}".format)
@EVERY_GRAD_MODE
def test_traced_wrapper_on_one_device_accepts_any_batch_size(topology, wrap, grad, slot):
    wrapped = wrap(nn.Linear(2, 1), 1)
    first, second = (torch.rand(count, 2).to(topology.device(slot)) for count in (4, 3))
    with torch.set_grad_enabled(grad):
        traced = torch.jit.trace(wrapped, first, check_trace=False)
        checks.same(traced(second), wrapped(second))
