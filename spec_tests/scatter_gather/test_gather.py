"""scatter_gather.gather: joining the replicas' outputs on one device."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.lifetimes import leaked_objects, objects_leaked_by_error
from spec_tests.harness.compare.refusals import refused
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import example_count
from spec_tests.strategies.calls import DeviceAt, PublicCall
from spec_tests.strategies.gather import (
    dict_gather_calls,
    gather_calls,
    mismatched_calls,
    ragged_gather_calls,
    scalar_calls,
    tensor_gather_calls,
)
from spec_tests.strategies.tensors import TensorSpec, device_slots

FEW = example_count.divided_by(3)


@clause("scatter_gather.gather.tensor")
@given(call=tensor_gather_calls())
def test_tensors_are_joined_along_dim(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.gather.tensor")
@given(slots=device_slots())
def test_parameters_are_joined_as_tensors_are(target, topology, slots):
    outputs = [torch.nn.Parameter(torch.ones(1, device=each)) for each in topology.take(slots)]
    found = target.scatter_gather.gather(outputs, topology.device(0))
    checks.same(found.tolist(), [1.0] * len(slots), slots)


@clause("scatter_gather.gather.nested")
@given(call=gather_calls())
def test_every_tensor_in_nested_containers_is_joined(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.gather.sequences")
@given(call=gather_calls(kinds=("list", "tuple", "ListSubclass", "TupleSubclass")))
def test_sequences_keep_their_class(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.gather.iterables")
@given(call=gather_calls(kinds=("CacheSequence",)))
def test_other_iterables_are_made_from_one_iterable(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.gather.named-tuples")
@given(call=gather_calls(kinds=("Pair", "Typed", "max")))
def test_named_tuples_keep_their_class(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.gather.mappings")
@given(call=gather_calls(kinds=("dict", "OrderedDict", "DictSubclass")))
def test_mappings_keep_their_class(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.gather.keys")
@given(call=dict_gather_calls())
def test_keys_are_those_of_the_first_in_its_order(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.gather.ragged")
@given(call=ragged_gather_calls())
def test_sequences_of_several_lengths_are_refused(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.gather.none")
@given(count=st.integers(1, 4), slot=st.integers(0, 3))
def test_none_from_every_replica_is_none(target, topology, count, slot):
    outputs = [[None, {"x": None}]] * count
    found = target.scatter_gather.gather(outputs, topology.device(slot))
    checks.same(found, [None, {"x": None}], outputs)


@clause("scatter_gather.gather.no-outputs")
@given(slot=st.integers(0, 3))
def test_no_outputs_are_refused(target, topology, slot):
    call = PublicCall("scatter_gather.gather", {"outputs": [], "target_device": DeviceAt(slot)})
    refused(call, target, topology, IndexError, "list index out of range")


@clause("scatter_gather.gather.scalars")
@given(call=scalar_calls())
def test_scalars_become_a_vector_with_a_warning(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.gather.scalars-along-other-dims")
@given(call=scalar_calls(dims=(1, -1)))
def test_scalars_are_joined_along_no_other_dimension(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.gather.mismatch")
@given(call=mismatched_calls())
def test_tensors_that_do_not_fit_are_refused(target, answers, topology, call):
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.gather.target")
@pytest.mark.parametrize("spelling", ["device", "ordinal", "text"])
@given(slots=device_slots(), slot=st.integers(0, 3))
def test_the_result_is_on_the_device_asked_for(target, topology, spelling, slots, slot):
    outputs = [torch.ones(1, device=device) for device in topology.take(slots)]
    found = target.scatter_gather.gather(outputs, DeviceAt(slot, spelling).build(topology))
    checks.same(found.device, topology.device(slot), slots)


@clause("scatter_gather.gather.target-cpu")
@given(slots=device_slots())
def test_the_cpu_is_a_target_by_its_name(target, topology, slots):
    outputs = [torch.ones(1, device=device) for device in topology.take(slots)]
    checks.same(target.scatter_gather.gather(outputs, "cpu").device.type, "cpu", slots)


@clause("scatter_gather.gather.target-minus-one")
@given(slots=device_slots())
def test_minus_one_is_the_cpu_with_a_warning(target, answers, topology, slots):
    outputs = [TensorSpec((2,), slot=slot) for slot in slots]
    call = PublicCall("scatter_gather.gather", {"outputs": outputs, "target_device": -1})
    checks.agree(call, target, answers, topology)


@clause("scatter_gather.gather.target-none")
@given(slots=device_slots(), current=st.integers(0, 3))
def test_none_is_the_current_device(target, topology, slots, current):
    outputs = [torch.ones(1, device=device) for device in topology.take(slots)]
    with torch.accelerator.device_index(topology.device(current).index):
        found = target.scatter_gather.gather(outputs, None)
    checks.same(found.device, topology.device(current), slots)


@clause("scatter_gather.gather.outputs-unchanged")
@given(call=gather_calls(kinds=("list", "dict", "DictSubclass", "Pair")))
def test_the_outputs_stay_as_they_were(target, topology, call):
    inputs = call.inputs(topology)
    before = snapshot(inputs, inputs)
    call.run(target, inputs)
    checks.same(snapshot(inputs, inputs), before, call)


@clause("scatter_gather.gather.leaves-nothing")
@FEW
@given(call=gather_calls())
def test_nothing_outlives_the_call(target, topology, call):
    checks.same(leaked_objects(call, target, topology), [], call)


@clause("scatter_gather.gather.leaves-nothing")
@FEW
@given(call=mismatched_calls())
def test_nothing_outlives_a_refused_call(target, topology, call):
    checks.same(objects_leaked_by_error(call, target, topology), [], call)


@clause("scatter_gather.gather.differentiable-twice")
@FEW
@given(rows=st.lists(st.integers(0, 2), min_size=1, max_size=3), slot=st.sampled_from([0, 1]))
def test_gradients_flow_through_twice(target, topology, rows, slot):
    parts = [
        torch.rand(extent, 2, dtype=torch.float64, device=device, requires_grad=True)
        for extent, device in zip(rows, topology.take(len(rows)), strict=True)
    ]

    def joined(*outputs):
        return target.scatter_gather.gather([{"x": x} for x in outputs], topology.device(slot))[
            "x"
        ]

    assert torch.autograd.gradcheck(joined, parts)
    assert torch.autograd.gradgradcheck(joined, parts)
