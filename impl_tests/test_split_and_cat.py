"""impl._split_and_cat: the memory format and the scale of joined tensors."""

import itertools

import pytest
import torch
from torch._prims_common import suggest_memory_format

from impl._devices import CPU
from impl._split_and_cat import cat_on_device


def tensors(dims):
    """Yield tensors with extents of 1 or 2, and with their strides in every order."""
    for order in itertools.permutations(range(dims)):
        for shape in itertools.product((1, 2), repeat=dims):
            yield torch.ones(shape).permute(order)


def expanded_and_spaced(tensor):
    """Yield variants of ``tensor``: along one dimension, elements are repeated or have gaps."""
    for dim in range(tensor.dim()):
        yield tensor.narrow(dim, 0, 1).expand_as(tensor)
        yield tensor.repeat_interleave(2, dim).narrow(dim, 0, tensor.size(dim))


def strides_suggested_for(tensor):
    memory_format = suggest_memory_format(tensor)
    return torch.empty(tensor.shape, memory_format=memory_format).stride()


@pytest.mark.parametrize("dims", [3, 4, 5])
def test_joined_tensor_has_the_memory_format_that_torch_suggests(dims):
    for tensor in tensors(dims):
        found = cat_on_device([tensor], 0, CPU)
        assert found.stride() == strides_suggested_for(tensor), (tensor.shape, tensor.stride())


def test_expanded_and_spaced_tensors_have_the_suggested_memory_format():
    for tensor in itertools.chain.from_iterable(map(expanded_and_spaced, tensors(4))):
        found = cat_on_device([tensor], 0, CPU)
        assert found.stride() == strides_suggested_for(tensor), (tensor.shape, tensor.stride())


# These tensors are deprecated, https://github.com/pytorch/pytorch/issues/184982.
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("other", [(1.0, 0), (0.1, 3)], ids=str)
def test_quantized_tensors_are_joined_if_their_scales_are_equal(other):
    values = torch.tensor([1.0, 5.0])
    parts = [torch.quantize_per_tensor(values, *each, torch.qint8) for each in ((0.1, 0), other)]
    assert cat_on_device([parts[0]] * 2, 0, CPU).int_repr().tolist() == [10, 50] * 2
    with pytest.raises(ValueError, match=r"different scales or zero points .*\(0\.1, 0\)"):
        cat_on_device(parts, 0, CPU)
