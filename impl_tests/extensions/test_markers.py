"""impl.Whole and impl.SplitAlong: copied whole, or split along another dimension."""

from dataclasses import FrozenInstanceError
from typing import NamedTuple

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
from spec_tests.strategies.small_modules import Calls
from spec_tests.strategies.tensors import TensorSpec, device_slots, tensor_specs


class Case(NamedTuple):
    """Arguments: lists, markers, descriptions of tensors, and constants.

    All tensors have the same extent along their split dimension. ``slots`` are the numbers of the
    devices in the topology.
    """

    arguments: list[object]
    extent: int
    slots: tuple[int, ...]


def build_arguments(value, build, dim=0, *, keeps_markers=False):
    """Replace each description of a tensor by ``build(description, dim)``.

    ``dim`` is None inside of ``Whole``. Markers are removed unless ``keeps_markers``.
    """
    if isinstance(value, list):
        return [build_arguments(each, build, dim, keeps_markers=keeps_markers) for each in value]
    if isinstance(value, impl.Whole | impl.SplitAlong):
        dim = getattr(value, "dim", None)
        inner = build_arguments(value.value, build, dim, keeps_markers=keeps_markers)
        if not keeps_markers:
            return inner
        return impl.Whole(inner) if dim is None else impl.SplitAlong(inner, dim)
    return build(value, dim) if isinstance(value, TensorSpec) else value


@st.composite
def marked_arguments(draw):
    """Draw arguments with markers, possibly nested. Shrinks to one tensor without a marker."""
    extent = draw(st.sampled_from([4, 3, 2, 1, 5]))
    anything = st.sampled_from([7, None, "text"]) | tensor_specs()
    along = {dim: scatter_gather.tensors(extent, dim) for dim in (0, 1, -1, 2)}
    split = st.sampled_from([1, -1, 2]).flatmap(
        lambda dim: (along[dim] | st.lists(along[dim], max_size=2)).map(
            lambda value: impl.SplitAlong(value, dim)
        )
    )
    whole = (anything | st.lists(anything | split, max_size=2)).map(impl.Whole)
    both = st.lists(whole | along[1], max_size=2).map(lambda value: impl.SplitAlong(value, 1))
    part = along[0] | split | whole | both
    parts = draw(st.lists(part | st.lists(part, max_size=2), max_size=3))
    slots = tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)))
    return Case([*parts, draw(along[0])], extent, slots)


def compute_gradients(value, inputs):
    outputs = [tensor for _, tensor in tensors(value, "") if tensor.requires_grad]
    leaves = [tensor for _, tensor in tensors(inputs, "") if tensor.requires_grad]
    if not outputs:
        return None
    grad_outputs = [cotangent(output) for output in outputs]
    return snapshot(list(torch.autograd.grad(outputs, leaves, grad_outputs)), {}, strides=False)


ROWS, COLUMNS = (TensorSpec(shape, requires_grad=True) for shape in ((4, 2), (2, 4)))


@given(case=marked_arguments())
@example(Case([impl.Whole(ROWS), impl.SplitAlong(COLUMNS, 1), ROWS], 4, (0, 1)))
def test_replicas_get_chunks_of_marked_arguments_with_their_gradients(topology, case):
    inputs = []

    def build(spec, _):
        inputs.append(spec.build(topology))
        return inputs[-1]

    def chunks_of(replica):
        tensors_left, device = iter(inputs), topology.device(case.slots[replica])

        def take_chunk(_, dim):
            tensor = next(tensors_left)
            if dim is not None and tensor.dim() > 0:
                tensor = tensor.narrow(dim, sum(rows[:replica]), rows[replica])
            return tensor.to(device)

        return build_arguments(case.arguments, take_chunk)

    marked = build_arguments(case.arguments, build, keeps_markers=True)
    rows = even_chunks(case.extent, len(case.slots))
    found = impl.scatter(marked, topology.take(case.slots))
    expected = [*map(chunks_of, range(len(rows)))]
    values = (snapshot(each, {}, strides=False) for each in (found, expected))
    checks.same(*values, case)
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


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.filterwarnings("ignore:.* should not be instantiated")
def test_compiled_module_gets_arguments_without_markers(topology):
    module = Calls(lambda module, x, factor: module.layer(x) * factor, layer=nn.Linear(4, 4))
    wrapper = impl.DataParallel(module.to(topology.device(0)), topology.take(1))
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
