"""replicate: copies of buffers and their updates."""

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.modules import Layer, ModuleSpec, module_specs
from spec_tests.strategies.replicate import replicate_calls
from spec_tests.strategies.tensors import device_slots

#: Kinds of layers with buffers.
BUFFERED = ("batch_norm", "counter", "grad_buffer", "shared_buffer")
COUNTER = ModuleSpec((Layer("counter"),))


@clause("replicate.buffers.copies")
@clause("replicate.buffers.requiring-grad")
@given(call=replicate_calls(kinds=BUFFERED, called=True))
def test_buffers_are_copied_as_buffers(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.buffers.first-is-the-modules")
@given(
    spec=module_specs(kinds=("batch_norm", "counter")), slots=device_slots(), detach=st.booleans()
)
def test_the_first_replica_shares_the_modules_buffers(target, topology, spec, slots, detach):
    module = spec.build(topology, slots[0])
    first, *_ = target.replicate.replicate(module, topology.take(slots), detach)
    checks.same([*map(id, first.buffers())], [*map(id, module.buffers())], spec)


@clause("replicate.buffers.updates-of-the-first-last")
@given(slots=device_slots(), runs=st.lists(st.integers(0, 3), max_size=4), detach=st.booleans())
@example(slots=(0, 0, 0), runs=[1], detach=False)
def test_only_buffer_updates_of_the_first_replica_are_kept(target, topology, slots, runs, detach):
    # PyTorch 1.0: the fix of #11476 lost the statistics of the first replica (#12671, #13350).
    module, devices = COUNTER.build(topology, slots[0]), topology.take(slots)
    replicas = target.replicate.replicate(module, devices, detach)
    runs = [run % len(slots) for run in runs]
    for index in runs:
        replicas[index](torch.ones(2, 4, device=devices[index]))
    found = [each[0].mean.tolist() for each in (module, *replicas)]
    checks.same(found, [[2.0 * runs.count(i)] * 4 for i in (0, *range(len(slots)))], runs)
