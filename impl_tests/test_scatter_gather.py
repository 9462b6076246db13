"""impl.scatter_gather: one row a device beside weights, packed sequences and marks."""

import sys
from types import SimpleNamespace

import pytest
import torch
from torch.masked import masked_tensor
from torch.nn.utils.rnn import pack_sequence

from impl import SplitAlong, Whole, scatter
from impl._comm.split_cat import cut
from impl.functions import Scatter
from impl.scatter_gather import scatter_kwargs
from spec_tests.strategies.wrappers import WARNINGS, Jagged, Masked, entries, sum_of_squares


def _sizes(shares):
    return [[len(x) for x in share] for share in shares]


@pytest.mark.parametrize("weights", [[3, 1], [1, 3], [5, 2]], ids=str)
def test_weights_do_not_change_one_row_a_device(topology, weights):
    inputs = [torch.ones(8, device=topology.device(0)), torch.arange(2)]
    shares = scatter(inputs, topology.take(2), chunk_sizes=weights)
    assert [each.tolist() for _, each in shares] == [[0], [1]]
    assert sum(len(batch) for batch, _ in shares) == 8


def test_a_batch_with_as_many_rows_as_devices_is_dealt_out_by_weight(topology):
    inputs = [torch.arange(3), torch.arange(3)]
    assert _sizes(scatter(inputs, topology.take(3), chunk_sizes=[2, 1, 0])) == [[2, 2], [1, 1]]


def test_packed_sequences_and_as_many_rows_are_dealt_out_by_weight(topology):
    packed = pack_sequence([torch.ones(1)] * 3)
    shares = scatter([packed, torch.arange(3)], topology.take(3), chunk_sizes=[2, 1, 0])
    assert [(len(one.data), len(other)) for one, other in shares] == [(2, 2), (1, 1)]


@pytest.mark.parametrize(
    ("on_cpu", "requires_grad", "grad_mode", "expected"),
    [
        (True, False, True, True),
        (True, False, False, True),
        (False, True, True, True),
        (False, True, False, False),
        (False, False, True, False),
    ],
)
def test_a_node_splits_what_has_gradients_or_comes_from_the_cpu(
    topology, monkeypatch, on_cpu, requires_grad, grad_mode, expected
):
    module, applied = sys.modules["impl.scatter_gather"], []
    monkeypatch.setattr(
        module, "Scatter", SimpleNamespace(apply=lambda *a: applied.append(a) or Scatter.apply(*a))
    )
    x = torch.ones(2, device="cpu" if on_cpu else topology.device(0), requires_grad=requires_grad)
    with torch.set_grad_enabled(grad_mode):
        chunks = scatter(x, topology.take(2))
    assert [chunk.tolist() for chunk in chunks] == [[1], [1]]
    assert bool(applied) == expected


def test_rows_that_are_left_out_have_a_zero_gradient(topology):
    each = torch.ones(4, 1, device=topology.device(0), requires_grad=True)
    shares = scatter([each, torch.ones(5)], topology.take(4))
    sum(share[0].sum().to(topology.device(0)) for share in shares).backward()
    assert each.grad.tolist() == [[1], [1], [1], [0]]


def test_a_dimension_of_its_own_may_have_one_row_a_device(topology):
    each = torch.arange(8).reshape(2, 4)
    shares = scatter([torch.ones(5), SplitAlong(each, 1)], topology.take(4))
    assert [row.tolist() for _, row in shares] == [[[0], [4]], [[1], [5]], [[2], [6]]]


def test_one_row_a_device_goes_with_few_packed_sequences(topology):
    packed = pack_sequence([torch.ones(2)] * 3)
    shares = scatter([torch.arange(4), packed], topology.take(4))
    assert [row.tolist() for row, _ in shares] == [[0], [1], [2]]


def test_packed_sequences_are_a_batch(topology):
    packed = pack_sequence([torch.ones(2)] * 4)
    with pytest.raises(ValueError, match=r"inputs\[0\] has size 4 .*inputs\[1\] has size 3 "):
        scatter([packed, torch.ones(3)], topology.take(4))


def test_two_batches_beside_one_row_a_device_are_named(topology):
    inputs = [torch.ones(4), torch.ones(8), torch.ones(2)]
    with pytest.raises(ValueError, match=r"inputs\[1\] has size 8 .*inputs\[2\] has size 2 "):
        scatter(inputs, topology.take(4))


def test_one_row_a_device_goes_with_an_empty_batch(topology):
    assert _sizes(scatter([torch.ones(0), torch.ones(3)], topology.take(3))) == [[0, 1]] * 3


def test_keyword_arguments_are_split_where_there_are_no_others(topology):
    args, kwargs = scatter_kwargs((), {"x": torch.arange(4)}, topology.take(2))
    assert args == ((), ())
    assert [each["x"].tolist() for each in kwargs] == [[0, 1], [2, 3]]


def test_arguments_are_split_where_there_are_no_others(topology):
    args, kwargs = scatter_kwargs((torch.arange(4),), None, topology.take(2))
    assert [each[0].tolist() for each in args] == [[0, 1], [2, 3]]
    assert kwargs == ({}, {})


@pytest.mark.filterwarnings(*WARNINGS)
@pytest.mark.parametrize("slot", [0, 2, None], ids=["first", "another", "cpu"])
@pytest.mark.parametrize("kind", [Jagged, Masked])
def test_a_whole_nested_or_masked_tensor_goes_to_every_device(topology, kind, slot):
    spec = kind(4 if kind is Masked else (3, 0, 2), requires_grad=True, slot=slot)
    whole = spec.build(topology)
    copies = [copy for [copy] in scatter([Whole(whole)], topology.take(3))]
    assert [entries(copy) for copy in copies] == [entries(whole)] * 3
    assert [copy.device for copy in copies] == topology.take(3)
    assert [copy is whole for copy in copies] == [place == slot for place in range(3)]
    sum(sum_of_squares(copy).cpu() for copy in copies).backward()
    assert sum_of_squares(whole.grad).item() == 36 * sum_of_squares(whole).item()


@pytest.mark.filterwarnings(*WARNINGS)
def test_a_masked_tensor_without_dimensions_goes_to_every_device(topology):
    scalar = masked_tensor(torch.tensor(2.0), torch.tensor(True))
    copies = [copy for [copy] in scatter([scalar], topology.take(2))]
    assert [copy.get_data().item() for copy in copies] == [2.0, 2.0]
    assert [copy.device for copy in copies] == topology.take(2)


def test_a_ragged_argument_is_named(topology):
    kwargs = {"x": [Jagged((3, 1)).build(topology)]}
    with pytest.raises(
        RuntimeError, match=r"^kwargs\['x'\]\[0\] cannot be split along its ragged"
    ):
        scatter_kwargs((), kwargs, topology.take(2), dim=1)


@pytest.mark.filterwarnings(*WARNINGS)
def test_plain_tensors_are_split_by_sizes(topology, monkeypatch):
    module, cuts = sys.modules["impl.scatter_gather"], []
    monkeypatch.setattr(module, "cut", lambda *a: cuts.append(a[2]) or cut(*a))
    x = torch.ones(3, device=topology.device(0))
    scatter([x, Jagged((1, 2, 3)).build(topology)], topology.take(2))
    assert cuts == [[2, 1], None]
