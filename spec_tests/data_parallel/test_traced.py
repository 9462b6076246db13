"""torch.jit.trace of wrappers. The reference traces several devices to constants: DP-6."""

import pytest
import torch
from torch import nn

from spec_tests import checks
from spec_tests.machine.clauses import clause
from spec_tests.strategies.small_modules import Calls

pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.trace",  # torch.jit.trace is deprecated.
    # The tracer warns that the reference's results are recorded as constants.
    "ignore::torch.jit.TracerWarning",
)
EVERY_GRAD_MODE = pytest.mark.parametrize("grad", [True, False], ids="grad={}".format)


#: For each call: a function that returns a module with this call in its forward.
CALLS = {
    "DataParallel": lambda target, module, devices: target.data_parallel.DataParallel(
        module, devices
    ),
    "data_parallel": lambda target, module, devices: Calls(
        lambda self, x: target.data_parallel.data_parallel(self.module, x, devices), module=module
    ),
    "parallel_apply": lambda target, module, devices: Calls(
        lambda self, x: torch.cat(
            target.parallel_apply.parallel_apply([self.module] * 2, [x] * 2, None, devices[:1] * 2)
        ),
        module=module,
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
    called = []
    module = Calls(lambda self, x: called.append(self) or self.layer(x), layer=nn.Linear(4, 4))
    module.to(topology.device(0))
    traced = make(target, module, topology.take(2))
    with torch.set_grad_enabled(grad), pytest.raises(RuntimeError) as raised:
        torch.jit.trace(traced, torch.rand(4, 4).to(topology.device(0)), check_trace=False)
    assert "trace the module itself, which is `wrapper.module`" in str(raised.value)
    assert called == []


@clause("data_parallel.one-device.traced")
@pytest.mark.parametrize("slot", [0, None], ids="slot={}".format)
@EVERY_GRAD_MODE
def test_traced_wrapper_on_one_device_accepts_any_batch_size(topology, wrap, grad, slot):
    wrapped = wrap(nn.Linear(2, 1), 1)
    first, second = (torch.rand(count, 2).to(topology.device(slot)) for count in (4, 3))
    with torch.set_grad_enabled(grad):
        traced = torch.jit.trace(wrapped, first, check_trace=False)
        checks.same(traced(second), wrapped(second))
