"""impl.scatter_gather: tensors of other layouts and classes, refusals, tangents, and grad mode."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.autograd import forward_ad
from torch.testing._internal.two_tensor import TwoTensor

from impl import Whole, _functions, functions, gather, scatter, scatter_gather
from impl.scatter_gather import scatter_kwargs
from spec_tests import checks
from spec_tests.checks.snapshot import snapshot
from spec_tests.checks.stream_log import CopyLog
from spec_tests.strategies.tensor_subclasses import (
    WARNINGS,
    Jagged,
    Masked,
    entries,
    sum_of_squares,
)


@pytest.mark.filterwarnings(*WARNINGS)
@pytest.mark.parametrize("slot", [0, 2, None], ids=["first device", "third device", "cpu"])
@pytest.mark.parametrize("kind", [Jagged, Masked])
def test_whole_nested_or_masked_tensor_is_copied_to_every_device(topology, kind, slot):
    # ``slot`` is an index into the devices of the topology; None is the CPU.
    spec = kind(4 if kind is Masked else (3, 0, 2), requires_grad=True, slot=slot)
    whole = spec.build(topology)
    copies = [copy for [copy] in scatter([Whole(whole)], topology.take(3))]
    assert [entries(copy) for copy in copies] == [entries(whole)] * 3
    assert [copy.device for copy in copies] == topology.take(3)
    assert [copy is whole for copy in copies] == [place == slot for place in range(3)]
    sum(sum_of_squares(copy).cpu() for copy in copies).backward()
    assert sum_of_squares(whole.grad).item() == 36 * sum_of_squares(whole).item()


@pytest.mark.parametrize("inputs", [1, iter([1])])
def test_arguments_that_are_no_sequence_are_refused(topology, inputs):
    with pytest.raises(TypeError, match="inputs must be a sequence of arguments, not"):
        scatter_kwargs(inputs, {}, topology.take(2))


#: Arguments of which those without grad mode are split by a loop of their own.
ARGUMENTS = st.one_of(
    st.sampled_from([None, 1.5, "text", (), [2]]),
    st.tuples(st.sampled_from([(4, 3), (3, 4), (2, 2), (0, 3), (4,), ()]), st.sampled_from("cd")),
)


@example(drawn=[((3, 4), "d"), 1.5, ((3, 4), "d")], count=2, dim=0, weights=None)
@example(drawn=[((4, 3), "d"), ((3, 4), "d")], count=2, dim=0, weights=None)
@example(drawn=[((4, 3), "d")], count=3, dim=0, weights=[1, 3, 2])
@given(
    drawn=st.lists(ARGUMENTS, max_size=3),
    count=st.integers(1, 3),
    dim=st.sampled_from([0, 1, -1]),
    weights=st.none() | st.lists(st.integers(1, 3), min_size=3, max_size=3),
)
def test_arguments_are_split_without_grad_mode_as_with_it(topology, drawn, count, dim, weights):
    def build(value):
        if not (type(value) is tuple and value):
            return value
        shape, place = value
        device = "cpu" if place == "c" else topology.device(0)
        return torch.arange(torch.Size(shape).numel(), device=device).view(shape)

    def found():
        last = {"last": values[-1]} if values else None
        sizes = weights and weights[:count]
        try:
            parts = scatter_kwargs(
                tuple(values), last, topology.take(count), dim, chunk_sizes=sizes
            )
        except (ValueError, IndexError) as error:
            return repr(error)
        return snapshot(parts, {"inputs": values})

    values = [*map(build, drawn)]
    with torch.no_grad():
        without = found()
    checks.same(without, found(), drawn)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_the_split_of_a_sparse_tensor_is_refused_by_path_and_layout(topology):
    inputs = {"graph": torch.eye(4).to_sparse_csr()}
    with pytest.raises(
        NotImplementedError, match=r"inputs\['graph'\] .* torch.sparse_csr, .* Whole"
    ):
        scatter(inputs, topology.take(2))


def test_a_sparse_tensor_that_requires_grad_cannot_be_marked_whole(topology):
    graph = torch.eye(4).to_sparse().requires_grad_()
    with pytest.raises(NotImplementedError, match=r"shape \(4, 4\) requires grad .*sparse_coo"):
        scatter([Whole(graph)], topology.take(2))
    with torch.no_grad():
        assert len(scatter([Whole(graph)], topology.take(2))) == 2


# PyTorch calls torch.jit.script when it computes the first forward derivative.
@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_forward_mode_tangents_are_scattered_and_gathered_without_requires_grad(topology):
    with forward_ad.dual_level():
        x = torch.ones(4, device=topology.device(0))
        chunks = scatter(forward_ad.make_dual(x, 2 * x), topology.take(2))
        whole = gather(chunks, topology.device(0))
        tangents = [forward_ad.unpack_dual(dual).tangent.tolist() for dual in (*chunks, whole)]
    assert tangents == [[2.0] * 2, [2.0] * 2, [2.0] * 4]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", ["sparse", "nested"])
def test_sparse_and_strided_nested_outputs_are_refused_by_layout(kind):
    outputs = [torch.ones(2, 2), torch.ones(2, 2)]
    convert = torch.Tensor.to_sparse if kind == "sparse" else torch.nested.as_nested_tensor
    with pytest.raises(NotImplementedError, match=f"^{kind} outputs with the layout"):
        gather([convert(each) for each in outputs], "cpu")


FIRST_LOSES = {
    "integer first": [torch.tensor([0, 1]), torch.tensor([0.5])],
    "half first": [torch.ones(1, dtype=torch.float16), torch.tensor([1e5])],
    "bool first": [torch.tensor([True]), torch.tensor([2, 3])],
    "real first": [torch.ones(1), torch.ones(2, dtype=torch.complex64)],
    "two kinds of 16 bits": [torch.ones(1).half(), torch.tensor([1e5]).bfloat16()],
    "without elements first": [torch.tensor([]), torch.tensor([2**24 + 1])],
    "without elements last": [torch.tensor([2**24 + 1]), torch.tensor([])],
    "without elements": [torch.tensor([]), torch.tensor([], dtype=torch.float64)],
}


@pytest.mark.parametrize("on_cpu", [True, False], ids=["on the CPU", "on devices"])
@pytest.mark.parametrize("parts", FIRST_LOSES.values(), ids=FIRST_LOSES)
def test_outputs_of_different_dtypes_are_promoted(topology, parts, on_cpu):
    devices = ["cpu"] * 2 if on_cpu else topology.take(2)
    outputs = [{"x": part.to(device)} for part, device in zip(parts, devices, strict=True)]
    expected = torch.cat([part for part in parts if len(part)] or parts)
    for found in (
        gather(outputs, devices[0])["x"],
        gather([each["x"] for each in outputs], "cpu"),
    ):
        checks.same(found.cpu(), expected)


@pytest.mark.parametrize("first", [torch.tensor(0), torch.tensor(0.0).half()], ids=str)
def test_gradients_reach_an_output_of_another_dtype_than_the_first(topology, first):
    devices = topology.take(2)
    loss = torch.tensor(1e5, device=devices[1], requires_grad=True)
    whole = gather([first.to(devices[0]), loss], devices[0], scalar_warning=False)
    (gradient,) = torch.autograd.grad((2 * whole).sum(), loss)
    assert (whole.tolist(), gradient.item(), gradient.dtype) == ([0, 1e5], 2, torch.float32)


def test_a_note_names_the_shapes_of_outputs_without_the_dimension():
    with pytest.raises(IndexError) as caught:
        gather([torch.ones(2), torch.ones(2)], "cpu", dim=1)
    assert caught.value.__notes__[0] == "Shapes of the outputs: replica 0: [2], replica 1: [2]"


class Unsplit(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if "chunk" in function.__name__:
            raise NotImplementedError(function.__name__)
        return super().__torch_function__(function, types, args, kwargs)


def test_no_tensor_is_copied_if_one_cannot_be_split(topology):
    unsplit = torch.ones(4).as_subclass(Unsplit)
    log = CopyLog()
    with log, pytest.raises(NotImplementedError):
        scatter([torch.ones(4), unsplit], topology.take(2))
    assert log.streams == []


def test_a_subclass_with_its_own_operators_is_split_into_the_given_sizes(topology):
    rows = torch.arange(8.0, device=topology.device(0)).reshape(4, 2)
    chunks = scatter(TwoTensor(rows, rows + 1), topology.take(2), chunk_sizes=[1, 3])
    assert [len(chunk) for chunk in chunks] == [1, 3]
    assert torch.equal(chunks[1].b.cpu(), rows[1:].cpu() + 1)


def test_names_of_other_modules_can_be_imported():
    """Other packages import them from torch.nn.parallel, and no clause names them."""
    assert _functions._get_stream is functions._get_stream
    assert scatter_gather.Gather is functions.Gather
    assert scatter_gather.Scatter is functions.Scatter
    assert scatter_gather._is_namedtuple is scatter_gather.is_namedtuple
