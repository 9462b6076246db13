"""scatter_gather.gather: the outputs of the replicas on one device."""

import weakref

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests import checks
from spec_tests.checks.leaks import check_none_kept, leaked_objects, objects_leaked_by_error
from spec_tests.checks.refusals import refused
from spec_tests.machine import profiles
from spec_tests.machine.clauses import cases, clause, error_of
from spec_tests.strategies.calls import DeviceAt, KeywordCall
from spec_tests.strategies.containers import Container
from spec_tests.strategies.scatter_gather import (
    gather_calls,
    mismatched_calls,
    scalar_calls,
    tensor_gather_calls,
)
from spec_tests.strategies.tensors import TensorSpec, device_slots

#: Decorator that runs a third of the usual number of examples, because each is slow.
FEWER_EXAMPLES = profiles.divide_examples(3)


DEVICE = DeviceAt(0)


def _gather(outputs, target_device=DEVICE):
    arguments = {"outputs": outputs, "target_device": target_device}
    return KeywordCall("scatter_gather.gather", arguments)


@clause("scatter_gather.gather.tensor")
@clause("scatter_gather.gather.target")
@clause("scatter_gather.gather.target-cpu")
@given(call=tensor_gather_calls())
@example(call=_gather([TensorSpec((2,))], DeviceAt(1, "ordinal")))
@example(call=_gather([TensorSpec((2,))], "cpu"))
def test_tensors_are_concatenated_along_dim(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("scatter_gather.gather.tensor")
@given(slots=device_slots())
def test_parameters_are_concatenated_like_tensors(target, topology, slots):
    outputs = [torch.nn.Parameter(torch.ones(1, device=device)) for device in topology.take(slots)]
    found = target.scatter_gather.gather(outputs, topology.device(0))
    checks.same(found.tolist(), [1.0] * len(slots), slots)


@clause("scatter_gather.gather.nested")
@clause("scatter_gather.gather.outputs-unchanged")
@given(call=gather_calls())
def test_tensors_in_nested_containers_are_gathered(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("scatter_gather.gather.sequences")
@given(call=gather_calls(kinds=("list", "tuple", "ListSubclass", "TupleSubclass")))
def test_gathered_sequences_keep_their_class(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("scatter_gather.gather.iterables")
@given(call=gather_calls(kinds=("CacheSequence",)))
def test_other_iterables_are_rebuilt_by_calling_their_class(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


ONE_ARGUMENT = Container("OneArgument", (TensorSpec((2,)), TensorSpec((2,))))
#: Keys of the outputs of two replicas.
KEYS = [("ba", "ba"), ("ba", "ab"), ("b", "ba"), ("ba", "b"), ("ba", "bc")]
#: Kinds and lengths of the outputs of two replicas.
SEQUENCES = [
    (("list", 2), ("list", 1)),
    (("tuple", 1), ("tuple", 2)),
    (("TupleSubclass", 0), ("list", 1)),
    (("Pair", 2), ("ListSubclass", 3)),
    (("list", 1), ("tuple", 1)),
]


def _dictionary(keys, slot):
    lengths = {"b": 1, "a": 2, "c": 4}
    return {key: TensorSpec((lengths[key],), slot=slot) for key in keys}


#: For each clause: calls with results like those of the baselines.
AGREED = {
    "scatter_gather.gather.keys": [
        _gather([_dictionary(first, 0), _dictionary(second, 1)]) for first, second in KEYS
    ],
    # Until PyTorch 2.9, gather truncated sequences to the length of the shortest one.
    "scatter_gather.gather.ragged": [
        _gather(
            [
                Container(kind, (TensorSpec((2,), slot=slot),) * length)
                for slot, (kind, length) in enumerate(sequences)
            ]
        )
        for sequences in SEQUENCES
    ],
    "scatter_gather.gather.none": [_gather([[None, {"x": None}]] * count) for count in (1, 3)],
    "scatter_gather.gather.target-minus-one": [
        _gather([TensorSpec((2,), slot=slot) for slot in range(count)], -1) for count in (1, 3)
    ],
}


@cases("call", AGREED)
def test_gather_agrees_with_the_baselines(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("scatter_gather.gather.named-tuples")
@example(call=_gather([ONE_ARGUMENT] * 2))
@given(call=gather_calls(kinds=("Pair", "Typed", "OneArgument", "max")))
def test_gathered_named_tuples_keep_their_class(target, baselines, topology, call):
    # PyTorch 1.7: gather called the class with one iterable, not with its fields (#50510).
    checks.agree(call, target, baselines, topology)


@clause("scatter_gather.gather.mappings")
@given(call=gather_calls(kinds=("dict", "OrderedDict", "DictSubclass")))
def test_gathered_mappings_keep_their_class(target, baselines, topology, call):
    # PyTorch 0.2: gather treated a dictionary as a sequence of its keys (#2992).
    checks.agree(call, target, baselines, topology)


@clause("scatter_gather.gather.no-outputs")
def test_empty_list_of_outputs_is_refused(target, topology):
    refused(_gather([]), target, topology, error_of("scatter_gather.gather.no-outputs"))


@clause("scatter_gather.gather.scalars")
@given(call=scalar_calls())
def test_gather_of_scalars_returns_a_vector_with_a_warning(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("scatter_gather.gather.scalars-along-other-dims")
@given(call=scalar_calls(dims=(1, -1)))
def test_gather_refuses_scalars_for_dims_other_than_zero(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("scatter_gather.gather.mismatch")
@given(call=mismatched_calls())
def test_tensors_with_incompatible_shapes_are_refused(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology)


@clause("scatter_gather.gather.target-none")
@given(slots=device_slots(), current=st.integers(0, 3))
def test_target_device_none_is_the_current_device(target, topology, slots, current):
    outputs = [torch.ones(1, device=device) for device in topology.take(slots)]
    with torch.accelerator.device_index(topology.device(current).index):
        found = target.scatter_gather.gather(outputs, None)
    checks.same(found.device, topology.device(current), slots)


@clause("scatter_gather.gather.leaves-nothing")
@FEWER_EXAMPLES
@given(call=gather_calls())
def test_gather_keeps_no_references_after_the_call(target, topology, call):
    check_none_kept(leaked_objects(call, target, topology), call)


@clause("scatter_gather.gather.leaves-nothing")
@given(slots=device_slots())
def test_a_result_with_gradients_keeps_no_outputs(target, topology, slots):
    outputs = [
        torch.ones(2, device=device, requires_grad=True) * 1 for device in topology.take(slots)
    ]
    alive = [weakref.ref(each) for each in outputs]
    result = target.scatter_gather.gather(outputs, topology.device(0))
    outputs.clear()
    checks.same([each() for each in alive], [None] * len(slots), slots)
    result.sum().backward()


@clause("scatter_gather.gather.leaves-nothing")
@FEWER_EXAMPLES
@given(call=mismatched_calls())
def test_gather_keeps_no_references_after_an_error(target, topology, call):
    check_none_kept(objects_leaked_by_error(call, target, topology), call)
