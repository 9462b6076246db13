"""Compiled wrappers, of whose Python code the reference makes dozens of graphs: DP-5."""

from collections import namedtuple
from operator import attrgetter

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from spec_tests.divergences.compile_backends import (
    CountingBackend,
    compiled_files,
    frame_count,
    reset_frame_count,
)
from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment.scripts import run_without_accelerator

SEVERAL = clause("divergences.DP-5.several-devices")
AROUND = clause("divergences.DP-5.all-else-is-compiled")
ONE = clause("divergences.DP-5.one-device")
UNRECORDED = clause("divergences.DP-5.what-no-graph-holds")
FULL = clause("divergences.DP-5.fullgraph")
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf",  # Dynamo looks at each input.
    "ignore:.* should not be instantiated",  # Dynamo does so with each Function.
)
WAYS = {
    "torch.compile(w)": lambda wrapper, **options: torch.compile(wrapper, **options),
    "w.compile()": lambda wrapper, **options: wrapper.compile(**options) or wrapper,
    "in a function": lambda wrapper, **options: torch.compile(lambda x: wrapper(x), **options),
}
ways = pytest.mark.parametrize("way", WAYS)
#: By the name of each function in the target, its arguments for a tensor, devices and a module.
CALLS = {
    "data_parallel.data_parallel": lambda x, devices, module: (module, x, devices),
    "scatter_gather.scatter": lambda x, devices, module: (x, devices),
    "scatter_gather.gather": lambda x, devices, module: ([x, x], devices[0]),
    "replicate.replicate": lambda x, devices, module: (module, devices),
    "parallel_apply.parallel_apply": lambda x, devices, module: ([module] * 2, [x, x]),
    "comm.broadcast": lambda x, devices, module: (x, devices),
    "comm.broadcast_coalesced": lambda x, devices, module: ([x], devices),
    "comm.reduce_add": lambda x, devices, module: ([x],),
    "comm.reduce_add_coalesced": lambda x, devices, module: ([[x]],),
    "comm.scatter": lambda x, devices, module: (x, devices),
    "comm.gather": lambda x, devices, module: ([x, x],),
    "functions.Scatter.apply": lambda x, devices, module: (devices, None, 0, x),
    "functions.Gather.apply": lambda x, devices, module: (devices[0], 0, x, x),
    "functions.Broadcast.apply": lambda x, devices, module: (devices, x),
}
Pair = namedtuple("Pair", ("left", "right"))


@pytest.fixture(autouse=True)
def nothing_is_compiled():
    torch.compiler.reset()
    reset_frame_count()


class Scaled(nn.Module):
    """A layer, times what else the caller passes."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, others=(), *, factor=1):
        tensors = [it for it in others if isinstance(it, torch.Tensor)]
        return self.layer(x).tanh() * sum(tensors, factor)


def wrapped(target, topology, devices, **options):
    placed = topology.take(devices)
    module = Scaled().to(placed[0])
    return target.data_parallel.DataParallel(module, placed, **options)


def rows(topology, count):
    return torch.rand(count, 4, device=topology.device(0))


def tensors(nested):
    found = [each for each in tree_leaves(nested) if isinstance(each, torch.Tensor)]
    return torch.cat([each.detach().cpu().flatten() for each in found])


def check_around(function, arguments, topology):
    """Fail unless torch.compile compiles what is before and after one call, and nothing else."""
    placed, x = topology.take(2), rows(topology, 4)
    module, backend = Scaled().to(placed[0]), CountingBackend()

    def call(x):
        result = function(*arguments(x + 1, placed, module))
        return result, x * 2

    found = torch.compile(call, backend=backend)(x)
    checks.same(tensors(found), tensors(call(x)), tolerance=checks.LAYER)
    checks.same((len(backend.devices), frame_count()), (2, 2))


def step(forward, wrapper, x):
    """One iteration; gives outputs and gradients."""
    wrapper.zero_grad()
    out = forward(x)
    out.square().sum().backward()
    return tensors([out, [each.grad for each in wrapper.parameters()]])


@SEVERAL
@ways
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_wrapper_computes_as_it_does_uncompiled(target, topology, way, backend):
    wrapper = wrapped(target, topology, 2)
    inputs = [rows(topology, count) for count in (4, 4, 5, 1)]
    expected = [step(wrapper.forward, wrapper, x) for x in inputs]
    compiled = WAYS[way](wrapper, backend=backend)
    found = [step(compiled, wrapper, x) for x in inputs]
    checks.same(torch.cat(found), torch.cat(expected), way, tolerance=checks.LAYER)


@SEVERAL
@pytest.mark.parametrize("way", ["torch.compile(w)", "w.compile()"])
def test_nothing_of_a_wrapper_is_compiled(target, topology, way):
    wrapper = wrapped(target, topology, 2)
    compiled = WAYS[way](wrapper, backend=CountingBackend())
    for count in (4, 4, 6, 7, 1):
        step(compiled, wrapper, rows(topology, count))
        # It may tell torch.compile why nothing is compiled.
        assert frame_count() <= 1, count


@SEVERAL
@ways
def test_replicas_run_compiled_where_the_module_is(target, topology, way):
    inner, outer = CountingBackend(), CountingBackend()
    wrapper = wrapped(target, topology, 2)
    wrapper.module.compile(backend=inner)
    compiled = WAYS[way](wrapper, backend=outer)
    for _ in range(2):
        step(compiled, wrapper, rows(topology, 4))
    checks.same(inner.devices, list(dict.fromkeys(topology.take(2))), way)
    checks.same(outer.devices, [], way)


@AROUND
def test_all_around_a_wrapper_is_compiled(target, topology):
    wrapper = wrapped(target, topology, 2)
    backend = CountingBackend()
    compiled = torch.compile(lambda x: wrapper(x + 1).sin().sum(), backend=backend)
    x = rows(topology, 4)
    checks.same(compiled(x), wrapper(x + 1).sin().sum(), tolerance=checks.LAYER)
    checks.same(len(backend.devices), 2)
    assert frame_count() <= 3


@AROUND
@pytest.mark.parametrize("name", CALLS)
def test_all_around_a_call_is_compiled(target, topology, name):
    check_around(attrgetter(name)(target), CALLS[name], topology)


@AROUND
def test_all_around_a_sum_is_compiled(target, topology):
    # The reference's is the one call that torch.compile takes for opaque.
    function = target.functions.ReduceAddCoalesced.apply
    check_around(function, lambda x, devices, module: (devices[0], 1, x, x), topology)


@AROUND
def test_nothing_of_backward_is_compiled(target, topology):
    # On the CPU backward runs in the thread that calls it.
    wrapper = target.data_parallel.DataParallel(Scaled(), ["cpu", "cpu"])
    backend = CountingBackend()

    def iterate(x):
        return step(wrapper, wrapper, x + 1)

    x = torch.rand(4, 4)
    expected = iterate(x)
    found = torch.compile(iterate, backend=backend)(x)
    checks.same(found, expected, tolerance=checks.LAYER)
    # The one frame tells torch.compile why nothing is compiled.
    assert len(set(compiled_files()) - {__file__}) <= 1, compiled_files()


@ONE
@ways
@pytest.mark.parametrize("slot", [0, None], ids="slot={}".format)
def test_with_one_device_a_wrapper_is_one_graph(target, topology, way, slot):
    wrapper = wrapped(target, topology, 1)
    x = torch.rand(4, 4, device=topology.device(slot))
    expected = step(wrapper.forward, wrapper, x)
    backend = CountingBackend()
    compiled = WAYS[way](wrapper, backend=backend, fullgraph=True)
    checks.same(step(compiled, wrapper, x), expected, way, tolerance=checks.LAYER)
    checks.same(len(backend.devices), 1, way)


@ONE
def test_with_one_device_nested_arguments_are_in_the_graph(target, topology):
    wrapper = wrapped(target, topology, 1)

    def call(x):
        return wrapper(x, [x, 2.0, None, {"key": (x,)}], factor=x)

    x = torch.rand(4, 4)
    found = torch.compile(call, backend="eager", fullgraph=True)(x)
    checks.same(found, call(x), tolerance=checks.LAYER)


@ONE
def test_without_accelerator_a_wrapper_is_one_graph(target):
    done = run_without_accelerator(
        """
        module = nn.Linear(2, 1)
        wrapped = target.data_parallel.DataParallel(module)
        compiled = torch.compile(wrapped, backend="eager", fullgraph=True)
        x = torch.ones(3, 2)
        print(torch.equal(compiled(x), module(x)))
        """,
        target,
    )
    assert done.stdout.splitlines() == ["True"], done.stderr


@ONE
def test_with_one_device_the_function_compiles_the_module(target, topology):
    module, x = Scaled().to(topology.device(0)), rows(topology, 4)
    backend = CountingBackend()

    def call(x):
        return target.data_parallel.data_parallel(module, x + 1, topology.take(1)) * 2

    compiled = torch.compile(call, backend=backend)
    checks.same(compiled(x), call(x), tolerance=checks.LAYER)
    checks.same((len(backend.devices), frame_count()), (3, 3))


@UNRECORDED
@ways
def test_a_step_of_a_subclass_is_made(target, topology, way):
    class Doubling(target.data_parallel.DataParallel):
        def scatter(self, inputs, kwargs, device_ids):
            (x,) = inputs
            return super().scatter((2 * x,), kwargs, device_ids)

    wrapper = Doubling(Scaled().to(topology.device(0)), topology.take(1))
    x = rows(topology, 4)
    compiled = WAYS[way](wrapper, backend="eager")
    checks.same(compiled(x), wrapper.module(2 * x), way, tolerance=checks.LAYER)


@UNRECORDED
@ways
def test_a_step_of_an_object_is_made(target, topology, way):
    wrapper = wrapped(target, topology, 1)
    x = rows(topology, 4)
    wrapper.scatter = lambda inputs, kwargs, device_ids: (((2 * x,),), ({},))
    for _ in range(2):
        compiled = WAYS[way](wrapper, backend="eager")
        checks.same(compiled(x), wrapper.module(2 * x), way, tolerance=checks.LAYER)


@UNRECORDED
def test_a_forward_that_a_subclass_extends_is_compiled(target, topology):
    class Shifted(target.data_parallel.DataParallel):
        def forward(self, x):
            return super().forward(x + 1) * 2

    wrapper = Shifted(Scaled().to(topology.device(0)), topology.take(2))
    backend, x = CountingBackend(), rows(topology, 4)
    expected = wrapper.module(x + 1) * 2
    found = torch.compile(wrapper, backend=backend)(x)
    checks.same(found, expected, tolerance=checks.LAYER)
    checks.same(len(backend.devices), 2)


@UNRECORDED
def test_named_tuples_reach_the_one_device(target, topology):
    wrapper = wrapped(target, topology, 1)
    x = torch.rand(4, 4)
    backend = CountingBackend()
    compiled = torch.compile(lambda x: wrapper(x, Pair(x, 2.0)) + 1, backend=backend)
    checks.same(compiled(x), wrapper(x, Pair(x, 2.0)) + 1, tolerance=checks.LAYER)
    checks.same(len(backend.devices), 2)


@UNRECORDED
def test_markers_are_taken_off(target, topology):
    wrapper = wrapped(target, topology, 1)
    x = torch.rand(4, 4)
    mark = target.package.Whole
    compiled = torch.compile(lambda x: wrapper(x, factor=mark(x)), backend="eager")
    checks.same(compiled(x), wrapper(x, factor=x), tolerance=checks.LAYER)


@UNRECORDED
@ways
def test_the_output_of_one_device_is_moved(target, topology, way):
    wrapper = wrapped(target, topology, 1, output_device=-1)
    x = rows(topology, 4)
    compiled = WAYS[way](wrapper, backend="eager")
    found = compiled(x)
    checks.same(found.device, torch.device("cpu"), way)
    checks.same(found, wrapper.module(x), way, tolerance=checks.LAYER)


@FULL
@ways
def test_a_full_graph_of_several_devices_is_refused(target, topology, way):
    compiled = WAYS[way](wrapped(target, topology, 2), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match=r"compile the module itself"):
        compiled(rows(topology, 4))


@SEVERAL
@AROUND
@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
def test_reference_is_compiled_itself(reference, topology):
    wrapper = wrapped(reference, topology, 2)
    step(torch.compile(wrapper, backend=CountingBackend()), wrapper, rows(topology, 4))
    assert frame_count() > 10


@ONE
@UNRECORDED
@FULL
@pytest.mark.parametrize("devices", [1, 2])
def test_reference_is_no_full_graph(reference, topology, devices):
    wrapper = wrapped(reference, topology, devices)
    with pytest.raises(Exception, match="marked as skipped"):
        torch.compile(wrapper, backend="eager", fullgraph=True)(rows(topology, 4))
