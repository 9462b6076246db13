"""Compiled wrappers; torch.compile traces dozens of frames of the reference: DP-5."""

from collections import namedtuple
from operator import attrgetter

import pytest
import torch
from torch import nn

from spec_tests import checks
from spec_tests.checks.compile_backends import CountingBackend
from spec_tests.checks.training_step import flatten, train_step
from spec_tests.cuda_stand_ins import STAND_INS
from spec_tests.machine.clauses import clause

pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf",  # Dynamo reads .grad of inputs.
    "ignore:.* should not be instantiated",  # Dynamo creates an instance of each Function.
    "ignore:Pickle, copy, and deepcopy support:DeprecationWarning",  # Dynamo copies iterators.
)
#: For each way to compile a wrapper w: a function that returns the compiled wrapper, given the
#: wrapper and options of torch.compile.
COMPILATIONS = {
    "torch.compile(w)": lambda wrapper, **options: torch.compile(wrapper, **options),
    "w.compile()": lambda wrapper, **options: wrapper.compile(**options) or wrapper,
    "in a function": lambda wrapper, **options: torch.compile(lambda x: wrapper(x), **options),
}
EVERY_COMPILATION = pytest.mark.parametrize("compilation", COMPILATIONS)
#: For each public function: a function that builds arguments for it.
CALLS = {
    "data_parallel.data_parallel": lambda x, devices, module: (module, x, devices),
    "scatter_gather.scatter": lambda x, devices, module: (x, devices),
    "parallel_apply.parallel_apply": lambda x, devices, module: ([module] * 2, [x, x]),
    "comm.reduce_add": lambda x, devices, module: ([x],),
    "comm.reduce_add_coalesced": lambda x, devices, module: ([[x]],),
    "comm.gather": lambda x, devices, module: ([x, x],),
    "functions.Scatter.apply": lambda x, devices, module: (devices, None, 0, x),
    "scatter_gather.gather": lambda x, devices, module: ([x, x], devices[0]),
    "replicate.replicate": lambda x, devices, module: (module, devices),
    "comm.broadcast": lambda x, devices, module: (x, devices),
    "comm.broadcast_coalesced": lambda x, devices, module: ([x], devices),
    "comm.scatter": lambda x, devices, module: (x, devices),
    "functions.Gather.apply": lambda x, devices, module: (devices[0], 0, x, x),
    "functions.Broadcast.apply": lambda x, devices, module: (devices, x),
    "functions.ReduceAddCoalesced.apply": lambda x, devices, module: (devices[0], 1, x, x),
}
Pair = namedtuple("Pair", ("left", "right"))


def count_frames():
    """Return the number of frames that torch.compile has traced since `reset_metrics`."""
    return torch._dynamo.utils.counters["frames"]["total"]


def list_compiled_files():
    """Return the file of each frame that torch.compile has compiled since `reset_metrics`."""
    found = torch._dynamo.utils.get_compilation_metrics()
    return [str(metrics.co_filename) for metrics in found]


def reset_metrics():
    """Reset the results of `count_frames` and `list_compiled_files`."""
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.clear_compilation_metrics()


@pytest.fixture(autouse=True)
def reset_compiler(monkeypatch):
    """Reset the compiler and its counters. Exclude the stand-ins for functions in C."""
    for name, stand_in in STAND_INS.items():
        if getattr(torch._C, name) is stand_in:
            monkeypatch.setattr(torch._C, name, torch.compiler.disable(stand_in))
    torch.compiler.reset()
    reset_metrics()


class ScaledLayer(nn.Module):
    """A module that multiplies the output of a layer by the sum of the other arguments."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, others=(), *, factor=1):
        tensors = [value for value in others if isinstance(value, torch.Tensor)]
        return self.layer(x).tanh() * sum(tensors, factor)


def wrapped(target, topology, devices, **options):
    placed = topology.take(devices)
    module = ScaledLayer().to(placed[0])
    return target.data_parallel.DataParallel(module, placed, **options)


def rows(topology, count):
    return torch.rand(count, 4).to(topology.device(0))


def count_graphs(function, x, **options):
    """Compile ``function``, compare its result for ``x``, and return a text: ``2 graphs``."""
    backend = CountingBackend()
    found = torch.compile(function, backend=backend, **options)(x)
    checks.same(flatten(found), flatten(function(x)), tolerance=checks.LAYER)
    return f"{len(backend.devices)} graphs"


@clause("divergences.DP-5.several-devices")
@pytest.mark.parametrize(
    ("backend", "compilation"), [("eager", "in a function"), ("aot_eager", "w.compile()")]
)
def test_compiled_wrapper_matches_the_uncompiled_wrapper(target, topology, compilation, backend):
    wrapper = wrapped(target, topology, 2)
    inputs = [rows(topology, count) for count in (4, 4, 5, 1)]
    expected = [train_step(wrapper, x, wrapper.forward) for x in inputs]
    compiled = COMPILATIONS[compilation](wrapper, backend=backend)
    found = [train_step(wrapper, x, compiled) for x in inputs]
    checks.same(torch.cat(found), torch.cat(expected), compilation, tolerance=checks.LAYER)


@clause("divergences.DP-5.several-devices")
@pytest.mark.parametrize("compilation", ["torch.compile(w)", "w.compile()"])
def test_torch_compile_traces_at_most_one_frame_of_a_wrapper(target, topology, compilation):
    wrapper = wrapped(target, topology, 2)
    compiled = COMPILATIONS[compilation](wrapper, backend=CountingBackend())
    for count in (4, 4, 6, 7, 1):
        train_step(wrapper, rows(topology, count), compiled)
        # The wrapper may use one frame to report the reason of the graph break.
        assert count_frames() <= 1, f"frames of a wrapper of {count} rows"


@clause("divergences.DP-5.several-devices")
@pytest.mark.parametrize("compilation", ["torch.compile(w)", "in a function"])
def test_replicas_of_a_compiled_module_run_compiled_code(target, topology, compilation):
    inner, outer = CountingBackend(), CountingBackend()
    wrapper = wrapped(target, topology, 2)
    wrapper.module.compile(backend=inner)
    compiled = COMPILATIONS[compilation](wrapper, backend=outer)
    for _ in range(2):
        train_step(wrapper, rows(topology, 4), compiled)
    checks.same(inner.devices, list(dict.fromkeys(topology.take(2))), compilation)
    checks.same(outer.devices, [], compilation)


@clause("divergences.DP-5.all-else-is-compiled")
def test_code_around_a_wrapper_is_compiled(target, topology):
    wrapper = wrapped(target, topology, 2)
    graphs = count_graphs(lambda x: wrapper(x + 1).sin().sum(), rows(topology, 4))
    checks.same(graphs, "2 graphs")
    assert count_frames() <= 3


@clause("divergences.DP-5.all-else-is-compiled")
@pytest.mark.parametrize("name", CALLS)
def test_code_around_a_call_is_compiled(target, topology, name):
    function, arguments = attrgetter(name)(target), CALLS[name]
    placed, x = topology.take(2), rows(topology, 4)
    module = ScaledLayer().to(placed[0])
    graphs = count_graphs(lambda x: (function(*arguments(x + 1, placed, module)), x * 2), x)
    checks.same(f"{graphs}, {count_frames()} frames", "2 graphs, 2 frames", name)


@clause("divergences.DP-5.all-else-is-compiled")
def test_backward_of_a_wrapper_is_not_compiled(target, topology):
    # On the CPU backward runs in the calling thread, where torch.compile could trace it.
    wrapper = target.data_parallel.DataParallel(ScaledLayer(), ["cpu", "cpu"])
    x = torch.rand(4, 4)
    expected = train_step(wrapper, x + 1)

    def train_compiled(module):
        torch._dynamo.reset()
        reset_metrics()
        compiled = torch.compile(lambda x: train_step(module, x + 1), backend="eager")
        return compiled(x), set(list_compiled_files())

    # PyTorch 2.11 also compiles `typing.cast`, which its own backward calls.
    _, files_without_wrapper = train_compiled(wrapper.module)
    found, files = train_compiled(wrapper)
    checks.same(found, expected, tolerance=checks.LAYER)
    # The wrapper may use one frame to report the reason of the graph break.
    assert len(files - files_without_wrapper) <= 1, files


@clause("divergences.DP-5.one-device")
@EVERY_COMPILATION
@pytest.mark.parametrize("slot", [0, None], ids="slot={}".format)
def test_wrapper_on_one_device_is_one_graph(target, topology, compilation, slot):
    wrapper, backend = wrapped(target, topology, 1), CountingBackend()
    x = torch.rand(4, 4).to(topology.device(slot))
    expected = train_step(wrapper, x, wrapper.forward)
    compiled = COMPILATIONS[compilation](wrapper, backend=backend, fullgraph=True)
    checks.same(train_step(wrapper, x, compiled), expected, compilation, tolerance=checks.LAYER)
    checks.same(f"{len(backend.devices)} graphs", "1 graphs", compilation)


@clause("divergences.DP-5.one-device")
def test_nested_arguments_on_one_device_are_in_the_graph(target, topology):
    wrapper = wrapped(target, topology, 1)
    count_graphs(
        lambda x: wrapper(x, [x, 2.0, None, {"key": (x,)}], factor=x),
        torch.rand(4, 4),
        fullgraph=True,
    )


@clause("divergences.DP-5.one-device")
def test_wrapper_without_devices_is_one_graph(target, topology):
    wrapper = wrapped(target, topology, 1)
    wrapper.device_ids = []  # As without an accelerator.
    count_graphs(wrapper, rows(topology, 3), fullgraph=True)


@clause("divergences.DP-5.one-device")
def test_data_parallel_on_one_device_compiles_the_module(target, topology):
    module, function = ScaledLayer().to(topology.device(0)), target.data_parallel.data_parallel
    x, devices = rows(topology, 4), topology.take(1)
    graphs = count_graphs(lambda x: function(module, x + 1, devices) * 2, x)
    checks.same(f"{graphs}, {count_frames()} frames", "3 graphs, 3 frames")


@clause("divergences.DP-5.what-no-graph-holds")
@pytest.mark.parametrize(
    ("place", "compilation"),
    [("class", "torch.compile(w)"), ("instance", "w.compile()"), ("instance", "in a function")],
)
def test_overridden_scatter_is_called(target, topology, place, compilation):
    x = rows(topology, 4)

    def scatter(inputs, kwargs, device_ids):
        return ((2 * x,),), ({},)

    steps = {"scatter": staticmethod(scatter)} if place == "class" else {}
    kind = type("Doubling", (target.data_parallel.DataParallel,), steps)
    wrapper = kind(ScaledLayer().to(topology.device(0)), topology.take(1))
    if place == "instance":
        wrapper.scatter = scatter
    for _ in range(2):
        compiled = COMPILATIONS[compilation](wrapper, backend="eager")
        checks.same(compiled(x), wrapper.module(2 * x), compilation, tolerance=checks.LAYER)


@clause("divergences.DP-5.what-no-graph-holds")
def test_extended_forward_of_a_subclass_is_compiled(target, topology):
    class Shifted(target.data_parallel.DataParallel):
        def forward(self, x):
            return super().forward(x + 1) * 2

    wrapper = Shifted(ScaledLayer().to(topology.device(0)), topology.take(2))
    checks.same(count_graphs(wrapper, rows(topology, 4)), "2 graphs")


@clause("divergences.DP-5.what-no-graph-holds")
def test_named_tuples_reach_the_module_on_one_device(target, topology):
    wrapper = wrapped(target, topology, 1)
    graphs = count_graphs(lambda x: wrapper(x, Pair(x, 2.0)) + 1, torch.rand(4, 4))
    checks.same(graphs, "2 graphs")


@clause("divergences.DP-5.what-no-graph-holds")
@pytest.mark.parametrize("compilation", ["torch.compile(w)", "w.compile()"])
def test_output_of_one_device_is_moved_to_the_output_device(target, topology, compilation):
    wrapper = wrapped(target, topology, 1, output_device=-1)
    x = rows(topology, 4)
    compiled = COMPILATIONS[compilation](wrapper, backend="eager")
    found = compiled(x)
    checks.same(found.device, torch.device("cpu"), compilation)
    checks.same(found, wrapper.module(x), compilation, tolerance=checks.LAYER)


@clause("divergences.DP-5.fullgraph")
@EVERY_COMPILATION
def test_fullgraph_with_several_devices_is_refused(target, topology, compilation):
    compiled = COMPILATIONS[compilation](
        wrapped(target, topology, 2), backend="eager", fullgraph=True
    )
    with pytest.raises(Exception, match=r"compile the module itself"):
        compiled(rows(topology, 4))
