"""The comparison notices a stand-in that differs in one way."""

import pytest
import torch

from spec_tests.cuda_stand_ins import STAND_INS
from spec_tests.cuda_stand_ins.tests.cuda_build.comparison import compare


def checking_dim_first(tensor, devices, sizes, dim, streams):
    if isinstance(tensor, torch.Tensor) and isinstance(dim, int) and dim >= max(tensor.dim(), 1):
        STAND_INS["_scatter"](tensor, [0], None, dim, None)
    return STAND_INS["_scatter"](tensor, devices, sizes, dim, streams)


def scattering_a_clone(*arguments):
    first, *others = STAND_INS["_scatter"](*arguments)
    return [first.clone(), *others]


def gathering_in_column_major_order(*arguments):
    tensor = STAND_INS["_gather"](*arguments)
    if tensor.dim() >= 2:
        tensor.data = tensor.mT.clone(memory_format=torch.contiguous_format).mT
    return tensor


#: For each change: the primitive, the changed stand-in, and a fact that differs.
CHANGES = [
    ("_scatter", checking_dim_first, "end"),
    ("_scatter", scattering_a_clone, "shares_memory"),
    ("_gather", gathering_in_column_major_order, "layout"),
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "stand_in", "fact"), CHANGES)
def test_a_changed_stand_in_is_noticed(name, stand_in, fact):
    with pytest.raises(AssertionError, match=f"\\('{fact}', "):
        compare(name, stand_in, 2000)
