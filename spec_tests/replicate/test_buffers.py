"""replicate: copies of buffers and their updates."""

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.modules import Layer, ModuleSpec, module_specs
from spec_tests.strategies.replicate import edge_case_module_calls, replicate_calls
from spec_tests.strategies.tensors import device_slots

#: Kinds of layers with buffers.
BUFFERED = ("batch_norm", "counter", "grad_buffer", "shared_buffer")
COUNTER = ModuleSpec((Layer("counter"),))


@clause("replicate.buffers.copies")
@given(call=replicate_calls(kinds=BUFFERED, called=True))
def test_buffers_are_copied_as_buffers(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.buffers.dtypes")
@given(call=edge_case_module_calls("assorted"))
def test_buffers_of_every_dtype_are_copied(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


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


@clause("replicate.buffers.parameters")
@given(slots=device_slots(), detach=st.booleans())
@example(slots=(0, 1), detach=False)
def test_a_buffer_that_is_a_parameter_is_the_copy_of_the_parameter(
    target, topology, slots, detach
):
    module = ModuleSpec((Layer("parameter_as_buffer"),)).build(topology, slots[0])
    replicas = target.replicate.replicate(module, topology.take(slots), detach)
    found = [replica[0].buffer is replica[0].weight for replica in replicas]
    checks.same(found, [True] * len(slots), slots)


@clause("replicate.buffers.requiring-grad")
@given(call=replicate_calls(kinds=("grad_buffer", "tanh"), called=True))
def test_buffers_that_require_a_gradient_get_a_gradient(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.buffers.persistence")
@given(slots=device_slots())
def test_non_persistent_buffers_stay_non_persistent(target, topology, slots):
    module = ModuleSpec((Layer("grad_buffer"),)).build(topology, slots[0])
    replicas = target.replicate.replicate(module, topology.take(slots))
    checks.same(
        [list(replica.state_dict()) for replica in replicas], [["0.with_grad"]] * len(slots), slots
    )
