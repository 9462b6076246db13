"""impl._replica.former_parameters: copies of a replica's parameters with deepcopy."""

import copy

import torch

from impl._replica.former_parameters import FormerParameters


def test_deepcopy_of_a_leaf_keeps_its_gradient():
    leaf = torch.ones(2, requires_grad=True)
    leaf.sum().backward()
    copied = copy.deepcopy(FormerParameters(weight=leaf))["weight"]
    assert copied is not leaf
    assert copied.grad.tolist() == [1, 1]


def test_deepcopy_of_a_non_leaf_is_a_leaf():
    tensor = 2 * torch.ones(2, requires_grad=True)
    copied = copy.deepcopy(FormerParameters(weight=tensor))["weight"]
    assert (copied.tolist(), copied.is_leaf, copied.requires_grad) == ([2, 2], True, True)
