"""impl.Whole and impl.SplitAlong: copied whole, or split along another dimension."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

import impl
from impl.scatter_gather import scatter_kwargs
from impl_tests.marked_arguments import (
    Mark,
    MarkedArguments,
    compute_gradients,
    expected_arguments,
    marked_arguments,
)
from spec_tests.harness.compare import checks
from spec_tests.harness.compare.numerical_gradients import pass_gradcheck, pass_gradgradcheck
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.environment import capabilities, example_count
from spec_tests.strategies.calls import build
from spec_tests.strategies.computed_modules import computed
from spec_tests.strategies.tensors import TensorSpec, device_slots

ROWS = TensorSpec((4, 2), requires_grad=True)
with_mixed = example(
    case=MarkedArguments(
        [Mark(ROWS), Mark(TensorSpec((2, 4), requires_grad=True), 1), ROWS], 4, (0, 1)
    )
)


@given(case=marked_arguments())
@with_mixed
def test_every_replica_gets_its_chunks_of_marked_arguments(topology, case):
    inputs = build(case.arguments, topology)
    marked = case.marked(inputs)
    found = impl.scatter(marked, topology.take(case.slots))
    expected = [expected_arguments(case, inputs, topology, replica) for replica in case.replicas]
    checks.same(_values(found), _values(expected), case)


@given(case=marked_arguments())
@with_mixed
def test_keyword_arguments_may_be_marked(topology, case):
    inputs = build(case.arguments, topology)
    kwargs = {"x": case.marked(inputs)}
    found = scatter_kwargs((), kwargs, topology.take(case.slots))[1]
    expected = [
        {"x": expected_arguments(case, inputs, topology, replica)} for replica in case.replicas
    ]
    checks.same(_values(list(found)), _values(expected), case)


@given(case=marked_arguments())
@with_mixed
def test_gradients_of_whole_arguments_are_summed(topology, case):
    inputs = build(case.arguments, topology)
    marked = case.marked(inputs)
    found = impl.scatter(marked, topology.take(case.slots))
    expected = [expected_arguments(case, inputs, topology, replica) for replica in case.replicas]
    checks.same(compute_gradients(found, inputs), compute_gradients(expected, inputs), case)


@example_count.divide_examples(5)
@given(slots=device_slots())
def test_gradients_flow_through_marked_arguments_twice(topology, slots):
    device = topology.device(0)
    capabilities.require("float64")
    tensor = torch.rand(2, 3, dtype=torch.float64).to(device).requires_grad_()

    def chunks(x):
        pair = impl.Whole(x), impl.SplitAlong(x, 1)
        found = impl.scatter(pair, topology.take(slots))
        return tuple(chunk.to(device) for replica in found for chunk in replica)

    assert pass_gradcheck(chunks, [tensor])
    assert pass_gradgradcheck(chunks, [tensor])


@given(slots=device_slots(min_size=2))
def test_the_first_replica_shares_the_memory_of_a_whole_tensor_on_its_device(topology, slots):
    tensor = torch.ones(3, device=topology.device(slots[0]))
    found = impl.scatter(impl.Whole(tensor), topology.take(slots))
    found[0].add_(1)
    checks.same(tensor.tolist(), [2.0] * 3, slots)


@given(slots=device_slots(), value=st.sampled_from([7, None, "text"]))
def test_without_split_arguments_every_device_gets_the_whole_argument(topology, slots, value):
    tensor = torch.arange(3).to(topology.device(0))
    marked = [impl.Whole([tensor, value])]
    found = impl.scatter(marked, topology.take(slots))
    checks.same(
        [[part[0].tolist(), part[1]] for [part] in found], [[[0, 1, 2], value]] * len(slots)
    )


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state")
@pytest.mark.parametrize(
    ("layout", "blocksize"),
    [
        (torch.sparse_coo, None),
        (torch.sparse_csr, None),
        (torch.sparse_csc, None),
        (torch.sparse_bsr, (1, 2)),
        (torch.sparse_bsc, (1, 2)),
    ],
    ids=str,
)
@given(rows=st.sampled_from([4, 1, 0]), slots=device_slots())
def test_sparse_tensors_marked_whole_are_copied(topology, layout, blocksize, rows, slots):
    capabilities.require("sparse")
    matrix = torch.eye(rows, 4).to_sparse(layout=layout, blocksize=blocksize)
    matrix = matrix.to(topology.device(0))
    found = impl.scatter([impl.Whole(matrix)], topology.take(slots))
    checks.same([copy.device for [copy] in found], topology.take(slots))
    checks.same([copy.layout for [copy] in found], [layout] * len(slots))
    checks.same(
        [copy.to_dense().tolist() for [copy] in found], [matrix.to_dense().tolist()] * len(slots)
    )


class WithState(nn.Module):
    """A recurrent layer whose state has its batch dimension at index 1."""

    def __init__(self):
        super().__init__()
        self.layer = nn.GRU(3, 2, batch_first=True)

    def forward(self, rows, state=None):
        return self.layer(rows, state)[0]


@example_count.divide_examples(3)
@given(batch=st.integers(1, 6), slots=device_slots())
@example(batch=4, slots=(0, 1))
def test_a_recurrent_state_may_be_split_along_another_dimension(topology, batch, slots):
    computed(["gru"])
    first_device = topology.device(slots[0])
    module = WithState().to(first_device)
    rows, state = (
        torch.rand(batch, 2, 3).to(first_device),
        torch.rand(1, batch, 2).to(first_device),
    )
    wrapped = impl.DataParallel(module, topology.take(slots))
    found = wrapped(rows, state=impl.SplitAlong(state, 1))
    checks.same(found, module(rows, state), batch, tolerance=checks.LAYER)


class Product(nn.Linear):
    """A linear layer whose output is multiplied by a factor."""

    def forward(self, x, factor):
        return super().forward(x) * factor


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.filterwarnings("ignore:.* should not be instantiated")
def test_compiled_module_gets_arguments_without_markers(topology):
    wrapper = impl.DataParallel(Product(4, 4).to(topology.device(0)), topology.take(1))
    x = torch.rand(4, 4)
    compiled = torch.compile(lambda x: wrapper(x, factor=impl.Whole(x)), backend="eager")
    checks.same(compiled(x), wrapper(x, factor=x), tolerance=checks.LAYER)


def _values(found):
    return snapshot(found, {}, strides=False)
