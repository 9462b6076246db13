"""DataParallel of compiled modules. Replicas of the reference run no compiled code: RE-1."""

import contextvars
import threading
import weakref

import pytest
import torch
from torch import nn

from spec_tests import checks
from spec_tests.checks.compile_backends import CountingBackend
from spec_tests.checks.leaks import check_freed, disable_gc
from spec_tests.checks.training_step import flatten, train_step
from spec_tests.machine.clauses import clause
from spec_tests.strategies.compiled_modules import COMPILATIONS
from spec_tests.strategies.supported_layers import computed

#: torch.compile reads ``.grad`` of the parameters of replicas, which are not leaves.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"
)


#: A context variable. A test sets it before backward and checks that backward sees the value.
SETTING = contextvars.ContextVar("setting", default="nothing")


@pytest.fixture(autouse=True)
def reset_compiler():
    """Reset the compiler: code of other tests counts towards PyTorch's recompilation limit."""
    torch.compiler.reset()


class Layers(nn.Module):
    """Layers in a user-defined class, because m.compile() does not compile classes of torch.nn."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.last = nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.first(x).tanh())


class GraphBreaking(nn.Module):
    """Two layers with a graph break between them."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x):
        y = self.first(x)
        torch._dynamo.graph_break()
        return self.second(y)


class BarrierBackend:
    """A backend that makes the backward graphs of all devices wait for each other.

    Each backward graph waits at a barrier, so backward times out unless the graphs run
    concurrently. The barrier waits for one graph for each of ``device_count`` devices.
    """

    def __init__(self, device_count):
        self.settings = []
        self.barrier = threading.Barrier(device_count, timeout=60)

    def __call__(self, graph, inputs):
        from functorch.compile import make_boxed_func
        from torch._dynamo.backends.common import aot_autograd  # The import takes seconds.

        def compile_backward(graph, inputs):
            return make_boxed_func(lambda *args: self.run_backward(graph, *args))

        return aot_autograd(
            fw_compiler=lambda graph, inputs: make_boxed_func(graph.forward),
            bw_compiler=compile_backward,
        )(graph, inputs)

    def run_backward(self, graph, *args):
        self.barrier.wait()
        self.settings.append(SETTING.get())
        return graph.forward(*args)


def wrapped(target, topology, backend, compilation="torch.compile(m)", devices=2, module=Layers):
    """Return a wrapper of a compiled module, and rows for it."""
    placed = topology.take(devices)
    rows = torch.rand(devices * 2, 4).to(placed[0])
    compiled = COMPILATIONS[compilation](module(), backend).to(placed[0])
    return target.data_parallel.DataParallel(compiled, placed), rows


def run_eagerly(function, *args):
    """Return the result of ``function`` without compiled code."""
    with torch.compiler.set_stance("force_eager"):
        return function(*args)


@clause("divergences.RE-1.compiled-once-a-device")
@pytest.mark.parametrize(("compilation", "devices"), [("torch.compile(m)", 4), ("m.compile()", 2)])
def test_code_is_compiled_once_per_device(target, topology, compilation, devices):
    backend = CountingBackend()
    parallel, rows = wrapped(target, topology, backend, compilation, devices)
    for _ in range(2):
        train_step(parallel, rows)
    # A device that occurs twice in the list has one compiled graph.
    checks.same(backend.devices, list(dict.fromkeys(topology.take(devices))), compilation)


@clause("divergences.RE-1.compiled-once-a-device")
def test_training_and_evaluation_each_compile_once_per_device(target, topology):
    topology.require(2)  # Without grad mode, replica 0 differs from a second one on its device.
    backend = CountingBackend()
    parallel, rows = wrapped(target, topology, backend, "a compiled child")
    for _ in range(2):
        train_step(parallel.train(), rows)
        with torch.no_grad():
            parallel.eval()(rows)
    checks.same(backend.devices, list(dict.fromkeys(topology.take(2))) * 2)


@clause("divergences.RE-1.compiled-once-a-device")
def test_each_compiled_module_has_its_own_code(target, topology):
    backends = [CountingBackend(), CountingBackend()]
    for backend in backends:
        train_step(*wrapped(target, topology, backend))
    counts = [len(backend.devices) for backend in backends]
    checks.same(counts, [len(set(topology.take(2)))] * 2)


@clause("divergences.RE-1.compiled-once-a-device")
def test_a_recompiled_module_gets_new_code(target, topology):
    first, second = CountingBackend(), CountingBackend()
    module = Layers()
    for backend in (first, second, second):
        train_step(*wrapped(target, topology, backend, "m.compile()", module=lambda: module))
    # A second compile() with the same backend compiles again, as for a module without replicas.
    devices = len(set(topology.take(2)))
    checks.same([len(first.devices), len(second.devices)], [devices, 2 * devices])


@clause("divergences.RE-1.compiled-once-a-device")
def test_a_graph_break_raises_no_error(target, topology):
    backend = CountingBackend()
    parallel, rows = wrapped(target, topology, backend, module=GraphBreaking)
    found, expected = train_step(parallel, rows), run_eagerly(train_step, parallel, rows)
    checks.same(found, expected, tolerance=checks.LAYER)
    assert backend.devices


@clause("divergences.RE-1.compiled-once-a-device")
def test_fullgraph_of_a_compiled_module_applies_to_its_replicas(target, topology):
    backend, placed = CountingBackend(), topology.take(2)
    module = torch.compile(GraphBreaking(), backend=backend, fullgraph=True).to(placed[0])
    with pytest.raises(Exception, match="in replica 0 on device"):
        target.data_parallel.DataParallel(module, placed)(torch.rand(4, 4).to(placed[0]))
    checks.same(backend.devices, [])


class Recording(nn.Module):
    """A module that records the input's device at the start and end of a call.

    Args:
        records: The list of records.
        accepted: The devices on which forward does not raise a LookupError; None for all.
    """

    def __init__(self, records, accepted=None):
        super().__init__()
        self.records, self.accepted = records, accepted

    def forward(self, x):
        self.records.append(("start", x.device))
        if self.accepted is not None and x.device not in self.accepted:
            raise LookupError("no rows here")
        self.records.append(("end", x.device))
        return x


def run_between(target, topology, compilation, first, last):
    """Run compiled layers between two modules on three devices."""
    placed = topology.take(3)
    module = nn.Sequential(first, COMPILATIONS[compilation](Layers(), "eager"), last)
    parallel = target.data_parallel.DataParallel(module.to(placed[0]), placed)
    parallel(torch.rand(6, 4).to(placed[0]))


@clause("divergences.RE-1.compiled-replicas-in-turn")
@pytest.mark.parametrize("compilation", ["torch.compile(m)", "m.compile()"])
def test_compiled_replicas_run_one_after_another(target, topology, compilation):
    records = []
    run_between(target, topology, compilation, Recording(records), Recording(records))
    events = [(event, device) for device in topology.take(3) for event in ("start", "end") * 2]
    checks.same(records, events, compilation)


@clause("divergences.RE-1.compiled-replicas-in-turn")
def test_all_replicas_run_and_the_first_error_is_raised(target, topology):
    topology.require(distinct=3)
    records = []
    failing = Recording(records, topology.take(1))
    with pytest.raises(LookupError, match="in replica 1 on device"):
        run_between(target, topology, "torch.compile(m)", nn.Identity(), failing)
    starts = [device for event, device in records if event == "start"]
    checks.same(starts, topology.take(3))


@clause("divergences.RE-1.compiled-replicas-in-turn")
def test_an_error_in_compiled_code_names_the_replica(target, topology):
    parallel, rows = wrapped(target, topology, "eager")
    with pytest.raises(Exception, match="in replica 0 on device"):
        parallel(rows[:, :3])


@clause("divergences.RE-1.compiled-replicas-in-turn")
def test_replicas_are_freed_after_the_call(target, topology):
    module = COMPILATIONS["m.compile()"](Layers(), "eager")
    placed = topology.take(2)
    rows = [torch.rand(2, 4).to(device) for device in placed]
    with disable_gc():
        replicas = target.replicate.replicate(module.to(placed[0]), placed)
        references = [weakref.ref(replica) for replica in replicas]
        target.parallel_apply.parallel_apply(replicas, rows, devices=placed)
        del replicas
        check_freed(references)


@clause("divergences.RE-1.backward-through-compiled-replicas")
@pytest.mark.parametrize("compilation", ["m.compile()", "a compiled child"])
def test_compiled_backward_runs_on_all_devices_concurrently(target, topology, compilation):
    topology.require(distinct=2)
    SETTING.set("set by the caller")
    single_backend, backend = BarrierBackend(1), BarrierBackend(2)
    parallel, rows = wrapped(target, topology, backend, compilation)
    train_step(COMPILATIONS[compilation](Layers(), single_backend).to(rows.device), rows)
    found = train_step(parallel, rows)
    # Before PyTorch 2.12 both lists of settings are empty.
    checks.same(backend.settings, single_backend.settings * 2, compilation)
    expected = run_eagerly(train_step, parallel, rows)
    checks.same(found, expected, compilation, tolerance=checks.LAYER)


@clause("divergences.RE-1.backward-through-compiled-replicas")
def test_graph_breaks_do_not_change_gradients(target, topology):
    parallel, rows = wrapped(target, topology, "aot_eager", module=GraphBreaking)
    found = [train_step(parallel, rows) for _ in range(2)]
    expected = [run_eagerly(train_step, parallel, rows)] * 2
    checks.same(flatten(found), flatten(expected), tolerance=checks.LAYER)


@clause("divergences.RE-1.backward-through-compiled-replicas")
def test_double_backward_works_with_a_backend_that_supports_it(target, topology):
    computed(["batch_norm"])
    parallel, rows = wrapped(target, topology, "eager")
    found = double_backward_step(parallel, rows)
    expected = run_eagerly(double_backward_step, parallel, rows)
    checks.same(found, expected, tolerance=checks.LAYER)


def double_backward_step(parallel, rows):
    """Return the gradients of a gradient penalty with respect to the parameters."""
    rows = rows.detach().requires_grad_()
    (grad,) = torch.autograd.grad(parallel(rows).square().sum(), rows, create_graph=True)
    return flatten(torch.autograd.grad(grad.square().sum(), list(parallel.parameters())))


@clause("divergences.RE-1.backward-through-compiled-replicas")
def test_double_backward_is_refused_by_a_backend_without_support(target, topology):
    parallel, rows = wrapped(target, topology, "aot_eager")
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        double_backward_step(parallel, rows)
