"""impl._copies: copies of jagged tensors, of tensors that refuse to be copied, and of state."""

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from impl._copies import move_by_own_operators, with_class_and_attributes
from impl._devices import CPU


def narrowed_tensor():
    """Return a jagged tensor with gaps between its rows."""
    starts, lengths = torch.tensor([0, 1]), torch.tensor([2, 3])
    rows = torch.arange(24.0).reshape(2, 4, 3).requires_grad_()
    return torch.nested.narrow(rows, 1, starts, lengths, layout=torch.jagged)


def transposed_tensor():
    """Return a jagged tensor whose second dimension is not the jagged one."""
    rows = [torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(4, 3)]
    nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    return nested.requires_grad_().transpose(1, 2)


@pytest.mark.parametrize("make", [narrowed_tensor, transposed_tensor])
@pytest.mark.parametrize("requires_grad", [False, True], ids="requires_grad={}".format)
def test_copy_of_a_jagged_tensor_has_its_rows(topology, make, requires_grad):
    tensor = make() if requires_grad else make().detach()
    copy = move_by_own_operators(tensor, topology.device(0))
    assert (copy.device, copy.requires_grad) == (topology.device(0), requires_grad)
    assert [row.tolist() for row in copy.unbind()] == [row.tolist() for row in tensor.unbind()]


class RefusesCopy(TwoTensor):
    """A tensor whose method ``to`` refuses the argument ``copy``, as those of torchao do."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.Tensor.to and "copy" in (kwargs or {}):
            raise RuntimeError(".to() does not accept copy argument")
        return super().__torch_function__(function, types, args, kwargs or {})


@pytest.mark.parametrize("copy", [False, True], ids="copy={}".format)
def test_a_class_that_refuses_to_copy_in_its_method_to_is_copied(copy):
    tensor = RefusesCopy(torch.ones(2), torch.zeros(2))
    found = move_by_own_operators(tensor, CPU, copy=copy)
    assert type(found) is RefusesCopy
    assert (found.a.data_ptr() != tensor.a.data_ptr()) is copy


class State:
    """State of a tensor, like ``quant_state`` of bitsandbytes: ``to`` changes the object."""

    def __init__(self, scale, inner=None):
        self.scale, self.inner, self.bits = scale, inner, [4]

    def to(self, device):
        raise NotImplementedError


def test_state_of_a_tensor_is_copied_to_the_device_of_its_copy(topology):
    device = topology.device(0)
    shared = torch.ones(2)
    source = torch.ones(3)
    source.scale = shared
    source.state = State(torch.tensor(2.0), inner=State(torch.tensor(3.0)))
    source.other = State(None)
    copy = with_class_and_attributes(torch.ones(3, device=device), source)
    assert (copy.scale is shared, copy.other is source.other) == (True, True)
    for state, value, original in (
        (copy.state, 2.0, source.state),
        (copy.state.inner, 3.0, source.state.inner),
    ):
        assert (state.scale.device, state.scale.item()) == (device, value)
        assert (original.scale.device, state.bits is original.bits) == (CPU, True)


def test_state_of_a_copy_on_the_same_device_shares_the_tensors():
    source = torch.ones(3)
    source.state = State(torch.tensor(2.0))
    copy = with_class_and_attributes(torch.ones(3), source)
    assert copy.state is not source.state
    assert copy.state.scale is source.state.scale
