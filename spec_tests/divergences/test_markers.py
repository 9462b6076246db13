"""Arguments marked as Whole or SplitAlong; the reference has no markers: SG-5."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from spec_tests.divergences.marked_arguments import compute_gradients, expected_arguments
from spec_tests.harness.compare import checks
from spec_tests.harness.compare.numerical_gradients import pass_gradcheck, pass_gradgradcheck
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import capabilities, example_count
from spec_tests.strategies.calls import build
from spec_tests.strategies.computed_modules import computed
from spec_tests.strategies.layers import RNN_WEIGHTS_WARNING
from spec_tests.strategies.markers import Mark, MarkedArguments, marked_arguments
from spec_tests.strategies.tensors import TensorSpec, device_slots

pytestmark = pytest.mark.filterwarnings(RNN_WEIGHTS_WARNING)
MARKS_CLAUSE = clause("divergences.SG-5.marked-arguments")
GRADIENTS_CLAUSE = clause("divergences.SG-5.gradients-of-marked-arguments")
MEMORY_CLAUSE = clause("divergences.SG-5.whole-on-its-device-is-shared")
ALONE_CLAUSE = clause("divergences.SG-5.whole-alone")
BATCH_DIM_CLAUSE = clause("divergences.SG-5.state-with-another-batch-dim")
ROWS = TensorSpec((4, 2), requires_grad=True)
with_mixed = example(
    case=MarkedArguments(
        [Mark(ROWS), Mark(TensorSpec((2, 4), requires_grad=True), 1), ROWS], 4, (0, 1)
    )
)


@MARKS_CLAUSE
@given(case=marked_arguments())
@with_mixed
def test_every_replica_gets_its_chunks_of_marked_arguments(target, topology, case):
    inputs = build(case.arguments, topology)
    marked = case.marked(inputs, target.package)
    found = target.scatter_gather.scatter(marked, topology.take(case.slots))
    expected = [expected_arguments(case, inputs, topology, replica) for replica in case.replicas]
    checks.same(_values(found), _values(expected), case)


@MARKS_CLAUSE
@given(case=marked_arguments())
@with_mixed
def test_keyword_arguments_may_be_marked(target, topology, case):
    inputs = build(case.arguments, topology)
    kwargs = {"x": case.marked(inputs, target.package)}
    found = target.scatter_gather.scatter_kwargs((), kwargs, topology.take(case.slots))[1]
    expected = [
        {"x": expected_arguments(case, inputs, topology, replica)} for replica in case.replicas
    ]
    checks.same(_values(list(found)), _values(expected), case)


@GRADIENTS_CLAUSE
@given(case=marked_arguments())
@with_mixed
def test_gradients_of_whole_arguments_are_summed(target, topology, case):
    inputs = build(case.arguments, topology)
    marked = case.marked(inputs, target.package)
    found = target.scatter_gather.scatter(marked, topology.take(case.slots))
    expected = [expected_arguments(case, inputs, topology, replica) for replica in case.replicas]
    checks.same(compute_gradients(found, inputs), compute_gradients(expected, inputs), case)


@GRADIENTS_CLAUSE
@example_count.divide_examples(5)
@given(slots=device_slots())
def test_gradients_flow_through_marked_arguments_twice(target, topology, slots):
    device = topology.device(0)
    capabilities.require("float64")
    tensor = torch.rand(2, 3, dtype=torch.float64).to(device).requires_grad_()

    def chunks(x):
        pair = target.package.Whole(x), target.package.SplitAlong(x, 1)
        found = target.scatter_gather.scatter(pair, topology.take(slots))
        return tuple(chunk.to(device) for replica in found for chunk in replica)

    assert pass_gradcheck(chunks, [tensor])
    assert pass_gradgradcheck(chunks, [tensor])


@MEMORY_CLAUSE
@given(slots=device_slots(min_size=2))
def test_the_first_replica_shares_the_memory_of_a_whole_tensor_on_its_device(
    target, topology, slots
):
    tensor = torch.ones(3, device=topology.device(slots[0]))
    found = target.scatter_gather.scatter(target.package.Whole(tensor), topology.take(slots))
    found[0].add_(1)
    checks.same(tensor.tolist(), [2.0] * 3, slots)


@ALONE_CLAUSE
@given(slots=device_slots(), value=st.sampled_from([7, None, "text"]))
def test_without_split_arguments_every_device_gets_the_whole_argument(
    target, topology, slots, value
):
    tensor = torch.arange(3).to(topology.device(0))
    marked = [target.package.Whole([tensor, value])]
    found = target.scatter_gather.scatter(marked, topology.take(slots))
    checks.same(
        [[part[0].tolist(), part[1]] for [part] in found], [[[0, 1, 2], value]] * len(slots)
    )


class WithState(nn.Module):
    """A recurrent layer whose state has its batch dimension at index 1."""

    def __init__(self):
        super().__init__()
        self.layer = nn.GRU(3, 2, batch_first=True)

    def forward(self, rows, state=None):
        return self.layer(rows, state)[0]


@BATCH_DIM_CLAUSE
@example_count.divide_examples(3)
@given(batch=st.integers(1, 6), slots=device_slots())
@example(batch=4, slots=(0, 1))
def test_a_recurrent_state_may_be_split_along_another_dimension(target, topology, batch, slots):
    computed(["gru"])
    first_device = topology.device(slots[0])
    module = WithState().to(first_device)
    rows, state = (
        torch.rand(batch, 2, 3).to(first_device),
        torch.rand(1, batch, 2).to(first_device),
    )
    wrapped = target.data_parallel.DataParallel(module, topology.take(slots))
    found = wrapped(rows, state=target.package.SplitAlong(state, 1))
    checks.same(found, module(rows, state), batch, tolerance=checks.LAYER)


@BATCH_DIM_CLAUSE
@given(slots=device_slots(min_size=2))
def test_reference_splits_a_recurrent_state_along_dimension_0(reference, topology, slots):
    rows, state = torch.rand(4, 2, 3), torch.rand(1, 4, 2)
    inputs = rows.to(topology.device(0)), state.to(topology.device(0))
    found = reference.scatter_gather.scatter(inputs, topology.take(slots))
    checks.same([part[1].shape for part in found], [torch.Size((1, 4, 2))], slots)


@MARKS_CLAUSE
@pytest.mark.parametrize("name", ["Whole", "SplitAlong"])
def test_reference_has_no_markers(reference, name):
    assert not hasattr(torch.nn.parallel, name)


def _values(found):
    return snapshot(found, {}, strides=False)
