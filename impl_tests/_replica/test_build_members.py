"""impl._replica.build: the attributes and parameters of a replica."""

import torch
from torch import nn

from impl._replica import build


class Subclass(torch.Tensor):
    """A tensor class without changes."""


def test_compiled_code_of_a_module_is_no_attribute_of_its_replicas():
    module = nn.Linear(1, 1)
    expected = dict(vars(module))
    module._compiled_call_impl = module._call_impl
    assert build._uncompiled_state(module) == expected


def test_only_instances_of_parameter_are_parameters():
    tensor = torch.ones(1)
    found = [build._is_parameter(each) for each in (tensor, tensor.as_subclass(Subclass))]
    assert found == [False, False]
    assert build._is_parameter(nn.Parameter(tensor))
