"""impl._replica.former_parameters: what a deepcopy of a replica's parameters keeps."""

import copy

import torch

from impl._replica.former_parameters import FormerParameters


def test_what_is_a_leaf_is_copied_as_any_leaf():
    leaf = torch.ones(2, requires_grad=True)
    leaf.sum().backward()
    copied = copy.deepcopy(FormerParameters(weight=leaf))["weight"]
    assert copied is not leaf
    assert copied.grad.tolist() == [1, 1]


def test_what_is_no_leaf_is_copied_without_its_history():
    tensor = 2 * torch.ones(2, requires_grad=True)
    copied = copy.deepcopy(FormerParameters(weight=tensor))["weight"]
    assert (copied.tolist(), copied.is_leaf, copied.requires_grad) == ([2, 2], True, True)
