"""impl.Whole and impl.SplitAlong: copied whole, or split along another dimension."""

from dataclasses import FrozenInstanceError, dataclass

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

import impl
from spec_tests import checks
from spec_tests.checks.nested_values import tensors
from spec_tests.checks.numerical_gradients import check_gradients, check_second_gradients
from spec_tests.checks.outcome import cotangent
from spec_tests.checks.snapshot import snapshot
from spec_tests.machine import capabilities, profiles
from spec_tests.oracle.chunk_sizes import even_chunks
from spec_tests.strategies import scatter_gather
from spec_tests.strategies.calls import build
from spec_tests.strategies.tensors import TensorSpec, device_slots, tensor_specs


@dataclass(frozen=True)
class Mark:
    """A marked value: ``SplitAlong(value, dim)``, or ``Whole(value)`` if ``dim`` is None."""

    value: object
    dim: int | None = None

    def build(self, topology):
        return build(self.value, topology)

    def __repr__(self):
        dim = "" if self.dim is None else f", {self.dim}"
        return f"{'Whole' if self.dim is None else 'SplitAlong'}({self.value!r}{dim})"


@dataclass(frozen=True)
class MarkedArguments:
    """Arguments whose tensors all have the same extent along their split dimension.

    Args:
        arguments: Lists, marks, tensors and constants.
        extent: The extent along the split dimension.
        slots: The numbers of the devices in the topology.
    """

    arguments: list[object]
    extent: int
    slots: tuple[int, ...]

    @property
    def replicas(self):
        return range(len(even_chunks(self.extent, len(self.slots))))

    def marked(self, inputs):
        leaves = iter(tensors(inputs, ""))
        return _map_tensors(self.arguments, 0, lambda _: next(leaves)[1], marked=True)


def _map_tensors(value, dim, make_tensor, *, marked):
    """Replace each tensor by ``make_tensor(dim)``, and each mark by a marker if ``marked``."""
    if isinstance(value, TensorSpec):
        return make_tensor(dim)
    if isinstance(value, list):
        return [_map_tensors(member, dim, make_tensor, marked=marked) for member in value]
    if not isinstance(value, Mark):
        return value
    inner = _map_tensors(value.value, value.dim, make_tensor, marked=marked)
    if not marked:
        return inner
    return impl.Whole(inner) if value.dim is None else impl.SplitAlong(inner, value.dim)


@st.composite
def marked_arguments(draw):
    """Draw arguments with marks, possibly nested. Shrinks to one tensor without a mark."""
    extent = draw(st.sampled_from([4, 3, 2, 1, 5]))
    anything = st.sampled_from([7, None, "text"]) | tensor_specs()
    along = {dim: scatter_gather.tensors(extent, dim) for dim in (0, 1, -1, 2)}
    split = st.sampled_from([1, -1, 2]).flatmap(
        lambda dim: st.builds(Mark, along[dim] | st.lists(along[dim], max_size=2), st.just(dim))
    )
    whole = st.builds(Mark, anything | st.lists(anything | split, max_size=2))
    both = st.builds(Mark, st.lists(whole | along[1], max_size=2), st.just(1))
    part = along[0] | split | whole | both
    parts = draw(st.lists(part | st.lists(part, max_size=2), max_size=3))
    slots = tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)))
    return MarkedArguments([*parts, draw(along[0])], extent, slots)


def expected_arguments(case, inputs, topology, replica):
    leaves = iter(tensors(inputs, ""))
    device = topology.device(case.slots[replica])
    rows = even_chunks(case.extent, len(case.slots))

    def take_chunk(dim):
        _, tensor = next(leaves)
        is_split = dim is not None and tensor.dim() > 0
        start = sum(rows[:replica])
        chunk = tensor.narrow(dim or 0, start, rows[replica]) if is_split else tensor
        return chunk.to(device)

    return _map_tensors(case.arguments, 0, take_chunk, marked=False)


def compute_gradients(value, inputs):
    outputs = [tensor for _, tensor in tensors(value, "") if tensor.requires_grad]
    leaves = [tensor for _, tensor in tensors(inputs, "") if tensor.requires_grad]
    if not outputs:
        return None
    grad_outputs = [cotangent(output) for output in outputs]
    return snapshot(list(torch.autograd.grad(outputs, leaves, grad_outputs)), {}, strides=False)


ROWS = TensorSpec((4, 2), requires_grad=True)
with_mixed = example(
    case=MarkedArguments(
        [Mark(ROWS), Mark(TensorSpec((2, 4), requires_grad=True), 1), ROWS], 4, (0, 1)
    )
)


@given(case=marked_arguments())
@with_mixed
def test_replicas_get_chunks_of_marked_arguments_with_their_gradients(topology, case):
    inputs = build(case.arguments, topology)
    marked = case.marked(inputs)
    found = impl.scatter(marked, topology.take(case.slots))
    expected = [expected_arguments(case, inputs, topology, replica) for replica in case.replicas]
    checks.same(_values(found), _values(expected), case)
    checks.same(compute_gradients(found, inputs), compute_gradients(expected, inputs), case)


@profiles.divide_examples(5)
@given(slots=device_slots())
def test_gradients_flow_through_marked_arguments_twice(topology, slots):
    device = topology.device(0)
    capabilities.require("float64")
    tensor = torch.rand(2, 3, dtype=torch.float64).to(device).requires_grad_()

    def chunks(x):
        pair = impl.Whole(x), impl.SplitAlong(x, 1)
        found = impl.scatter(pair, topology.take(slots))
        return tuple(chunk.to(device) for replica in found for chunk in replica)

    check_gradients(chunks, [tensor])
    check_second_gradients(chunks, [tensor])


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


BOTH = pytest.mark.parametrize(
    "make", [lambda: impl.Whole([1]), lambda: impl.SplitAlong([1], 0)], ids=["Whole", "SplitAlong"]
)


@BOTH
def test_marker_equals_only_itself(make):
    marker = make()
    assert marker == marker
    assert marker != make()
    assert len({marker, make()}) == 2


@BOTH
def test_marker_attribute_cannot_be_assigned(make):
    with pytest.raises(FrozenInstanceError):
        make().value = None


def _values(found):
    return snapshot(found, {}, strides=False)
