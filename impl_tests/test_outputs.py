"""impl._outputs: nested and masked tensors, and errors of iterables."""

from collections import OrderedDict
from contextlib import nullcontext

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.masked import as_masked_tensor, masked_tensor
from torch.nn.utils.rnn import pack_sequence

from impl import DataParallel, gather
from spec_tests import checks
from spec_tests.strategies.small_modules import Calls


class OutOfMemory:
    """An iterable that raises ``error`` on iteration if it is empty, else when a copy is built."""

    error: BaseException = MemoryError()

    def __init__(self, parts, is_original=False):
        if not is_original and parts:
            raise self.error
        self.parts = parts

    def __iter__(self):
        if not self.parts:
            raise self.error
        return iter(self.parts)


@pytest.mark.parametrize("parts", [[], [torch.ones(1)]], ids=["iterated", "built"])
@pytest.mark.parametrize("error", [MemoryError("m"), torch.OutOfMemoryError("m")])
def test_out_of_memory_error_of_an_iterable_is_propagated(monkeypatch, error, parts):
    monkeypatch.setattr(OutOfMemory, "error", error)
    values = [OutOfMemory(parts, is_original=True) for _ in range(2)]
    with pytest.raises(type(error)) as caught:
        gather(values, "cpu")
    assert str(caught.value) == "m"


class Members:
    def __init__(self, members):
        self.members = list(members)

    def __iter__(self):
        return iter(self.members)


class Doubled(Members):
    def __init__(self, members):
        super().__init__(2 * member for member in members)


def with_extra(make):
    """Return a function that makes an iterable with another attribute."""

    def make_members(chunk):
        members = Members([chunk])
        members.extra = make(chunk)
        return members

    return make_members


#: For each iterable: how it is made of a chunk, and a part of the warning.
NOT_REBUILT = {
    "set": (
        lambda chunk: {chunk, -chunk},
        "set .* cannot be joined .*the members of a set have no order",
    ),
    "doubled": (lambda chunk: Doubled([chunk]), "Doubled .* built .*has other members"),
    "rows": (with_extra(lambda chunk: chunk), "does not make Members"),
    "count": (with_extra(lambda _: 4), "does not make Members"),
    "nested": (with_extra(lambda chunk: Members([chunk])), "does not make Members"),
}


@pytest.mark.parametrize(("make", "text"), NOT_REBUILT.values(), ids=NOT_REBUILT)
def test_iterables_that_cannot_be_rebuilt_are_listed(make, text):
    outputs = [make(chunk) for chunk in torch.ones(7, 2).split([4, 3])]
    with pytest.warns(UserWarning, match=text):
        assert gather(outputs, "cpu") == outputs


def test_an_attribute_that_equals_an_item_by_chance_is_kept():
    outputs = [OrderedDict(count=3) for _ in range(2)]
    for each in outputs:
        each.layers = 3
    assert gather(outputs, "cpu").layers == 3


def test_sets_of_one_tensor_are_joined():
    (joined,) = gather([{torch.ones(2)}, {torch.zeros(1)}], "cpu")
    assert joined.tolist() == [1, 1, 0]


def shorten(module, x, lengths):
    """Return the outputs for a row, with as many steps as ``lengths`` says."""
    y = module.linear(x)
    return {"rows": as_nested_tensor([row[:n] for row, n in zip(y, lengths, strict=True)])}


def as_nested_tensor(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


@given(
    slots=st.sampled_from([[0, 1], [0, 1, 2], [0, 0], [None, None]]),
    lengths=st.lists(st.integers(1, 4), min_size=2, max_size=7),
)
@example(slots=[0, 1], lengths=[2, 2, 2, 2])
def test_jagged_outputs_become_one_nested_tensor(topology, slots, lengths):
    devices = topology.take(slots)
    net = Calls(shorten, linear=nn.Linear(2, 2)).to(devices[0])
    lengths = torch.tensor(lengths)
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


@pytest.mark.filterwarnings("ignore:.*MaskedTensor")  # Its API is a prototype.
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("slots", [[0, 1], [0, 0], [None, None]])
def test_masked_outputs_become_one_masked_tensor(topology, slots, requires_grad):
    devices = topology.take(slots)
    x = torch.arange(-5.0, 5).view(5, 2).to(devices[0]).requires_grad_(requires_grad)
    module = Calls(lambda _, x: as_masked_tensor(x, x >= 0))
    output = DataParallel(module, devices)(x)
    assert output.device == x.device
    checks.same(output.get_mask(), x >= 0, slots)
    filled = output.to_tensor(9)
    checks.same(filled.detach(), x.detach().where(x >= 0, 9), slots)
    if requires_grad:
        (gradient,) = torch.autograd.grad(filled.sum(), [x])
        checks.same(gradient.to_tensor(0), (x >= 0).float(), slots)


@pytest.mark.filterwarnings("ignore:.*MaskedTensor")
@pytest.mark.parametrize("warns", [False, True])
@pytest.mark.parametrize("slots", [[0, 1], [None, None]])
def test_masked_outputs_without_dimensions_become_a_masked_vector(topology, slots, warns):
    devices = topology.take(slots)
    outputs = [
        masked_tensor(torch.tensor(2.0), torch.tensor(is_valid)).to(device)
        for device, is_valid in zip(devices, [False, True], strict=True)
    ]
    with pytest.warns(UserWarning, match="all input tensors") if warns else nullcontext():
        vector = gather(outputs, devices[0], scalar_warning=warns)
    assert vector.get_mask().tolist() == [False, True]
    assert vector.to_tensor(0).tolist() == [0.0, 2.0]


def test_jagged_outputs_are_not_gathered_along_another_dimension(topology):
    outputs = [as_nested_tensor([torch.ones(2, 3)]), as_nested_tensor([torch.ones(1, 3)])]
    with pytest.raises(RuntimeError, match="gathered along dim 0 only, not along dim 2"):
        gather(outputs, topology.device(0), 2)


#: Outputs before a list with a tensor for each row.
FIRST = {
    "tensor": lambda rows: torch.ones(rows, 2),
    "packed sequence": lambda rows: pack_sequence([torch.ones(3)] * rows),
}


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("sizes", [(4, 3), (2, 2), (1, 1)])
def test_lists_of_one_tensor_for_each_row_are_appended(kind, sizes, first):
    make = FIRST[first]
    outputs = [
        {
            "loss": torch.ones(()),
            first: make(rows),
            "images": kind([torch.full((5, 2), 1.0 * rows)] * rows),
        }
        for rows in sizes
    ]
    found = gather(outputs, "cpu", scalar_warning=False)["images"]
    assert type(found) is kind
    expected = [1.0 * rows for rows in sizes for _ in range(rows)]
    assert [each.mean().item() for each in found] == expected


def test_lists_of_tensors_with_rows_are_joined_in_pairs():
    outputs = [{"x": torch.ones(2), "layers": [torch.ones(2, 3)] * 2} for _ in range(2)]
    assert [len(each) for each in gather(outputs, "cpu")["layers"]] == [4, 4]


@pytest.mark.parametrize("kind", [list, tuple, Members])
def test_the_error_for_lists_of_other_lengths_names_their_path(kind):
    outputs = [{"x": torch.ones(4), "boxes": kind([torch.ones(5)] * count)} for count in (2, 3)]
    with pytest.raises(ValueError, match="argument 2 is longer") as raised:
        gather(outputs, "cpu")
    assert "Lengths of output['boxes']: replica 0: 2, replica 1: 3" in raised.value.__notes__
