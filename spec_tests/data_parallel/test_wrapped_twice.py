"""DataParallel inside DataParallel."""

import signal

from hypothesis import given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.machine.clauses import clause
from spec_tests.machine.devices import not_run
from spec_tests.machine.processes import run_script
from spec_tests.strategies.modules import row_wise_specs

#: A program that calls a layer that is wrapped twice, each time for the same two devices.
WRAPS_TWICE = """
import re
devices, wrap = topology.take(2), target.data_parallel.DataParallel
net, x = nn.Linear(2, 1).to(devices[0]), torch.ones(4, 2, device=devices[0])
try:
    nn.functional.linear(x, net.weight.to(devices[1]))
    print("accepted")
    sys.exit()
except RuntimeError:
    print("refused", flush=True)
inner = wrap(net, devices)
function = target.data_parallel.data_parallel
for call in (wrap(inner, devices), lambda x: function(inner, x, devices)):
    try:
        call(x)
    except Exception as error:
        print(type(error).__name__, re.sub(r" \\d", " N", str(error).partition("\\n")[0]))
"""


@clause("parallel_apply.hazards.wrapped-twice")
@given(module=row_wise_specs(max_layers_per_level=2), rows=st.integers(1, 6))
def test_data_parallel_inside_data_parallel_has_the_outputs_of_the_module(
    target, topology, module, rows
):
    devices = [topology.device(0)] * 2
    wrap = target.data_parallel.DataParallel
    plain, x = module.build(topology), module.rows(rows).build(topology)
    checks.same(wrap(wrap(plain, devices), devices)(x), plain(x), tolerance=checks.LAYER)


@clause("parallel_apply.hazards.wrapped-twice")
def test_data_parallel_inside_data_parallel_fails_on_different_devices(target, topology):
    topology.require(distinct=2)
    done = run_script(WRAPS_TWICE, target, topology)
    of_operator, *of_target = done.stdout.splitlines() or [""]
    if of_operator == "accepted":
        not_run("the operators of the devices accept tensors of two devices")
    if not of_operator and done.returncode in (-signal.SIGABRT, -signal.SIGSEGV):
        not_run("an operator on tensors of two devices ends the process")
    assert done.returncode == 0, done.stderr
    text = "RuntimeError Caught RuntimeError in replica N on device N."
    checks.same(of_target, [text] * 2)
