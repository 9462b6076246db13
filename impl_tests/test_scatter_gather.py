"""impl.scatter_gather: subclasses, sparse and nested tensors, refused tensors, and tangents."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.autograd import forward_ad
from torch.testing._internal.two_tensor import TwoTensor

from impl import DataParallel, Whole, gather, scatter
from impl.scatter_gather import scatter_kwargs
from spec_tests.harness.compare import checks
from spec_tests.harness.concurrency.stream_log import CopyLog
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


class Unsplit(torch.Tensor):
    """A subclass that refuses to be split."""

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


class Shortened(nn.Module):
    """A layer whose output for a row has as many steps as the row says."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x, lengths):
        y = self.linear(x)
        return {"rows": as_nested_tensor([row[:n] for row, n in zip(y, lengths, strict=True)])}


def as_nested_tensor(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


@given(
    devices=st.sampled_from([[0, 1], [0, 1, 2], [0, 0], ["cpu"] * 2]),
    lengths=st.lists(st.integers(1, 4), min_size=2, max_size=7),
)
@example(devices=[0, 1], lengths=[2, 2, 2, 2])
def test_jagged_outputs_become_one_nested_tensor(topology, devices, lengths):
    devices = devices if "cpu" in devices else topology.take(devices)
    net, lengths = Shortened().to(devices[0]), torch.tensor(lengths)
    x = torch.randn(len(lengths), 4, 2, device=devices[0], requires_grad=True)
    steps = []
    for module in (DataParallel(net, devices), net):
        output = module(x, lengths)["rows"]
        rows = output.unbind()
        loss = sum(row.square().sum() for row in rows)
        steps.append([output.device, *rows, *torch.autograd.grad(loss, [x, *net.parameters()])])
    assert steps[0][0] == steps[1][0]
    for found, expected in zip(steps[0][1:], steps[1][1:], strict=True):
        checks.same(found, expected, lengths, tolerance=checks.LAYER)


def test_jagged_outputs_are_not_gathered_along_another_dimension(topology):
    outputs = [as_nested_tensor([torch.ones(2, 3)]), as_nested_tensor([torch.ones(1, 3)])]
    with pytest.raises(RuntimeError, match="gathered along dim 0 only, not along dim 2"):
        gather(outputs, topology.device(0), 2)


# PyTorch calls torch.jit.script when it computes the first forward derivative.
@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_forward_mode_tangents_are_scattered_and_gathered_without_requires_grad(topology):
    with forward_ad.dual_level():
        x = torch.ones(4, device=topology.device(0))
        chunks = scatter(forward_ad.make_dual(x, 2 * x), topology.take(2))
        whole = gather(chunks, topology.device(0))
        tangents = [forward_ad.unpack_dual(dual).tangent.tolist() for dual in (*chunks, whole)]
    assert tangents == [[2.0] * 2, [2.0] * 2, [2.0] * 4]
