"""What ``reference.enable`` changes, and what it leaves alone."""

import warnings

import pytest
import torch
import torch.nn.parallel

from spec_tests import reference
from spec_tests.topology import not_run


def test_every_primitive_exists_afterwards(topology):
    reference.enable()
    assert all(callable(getattr(torch._C, name)) for name in reference.STAND_INS)


def test_a_second_call_changes_nothing(topology):
    before = {name: getattr(torch._C, name) for name in reference.STAND_INS}
    reference.enable()
    assert {name: getattr(torch._C, name) for name in reference.STAND_INS} == before


def test_what_exists_is_left_alone(monkeypatch):
    def existing():
        """A primitive of a CUDA build."""

    monkeypatch.setattr(torch._C, "_gather", existing, raising=False)
    reference.enable()
    assert torch._C._gather is existing


def test_the_build_warns_of_nccl_and_of_nothing_else(topology):
    topology.require(distinct=2)
    if torch.version.cuda is not None:
        not_run("the warning belongs to builds without NCCL")
    inputs = [torch.ones(2, device=device) for device in topology.take(2)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.nn.parallel.comm.reduce_add(inputs, inputs[0].get_device())
    (filter_,) = reference.IGNORED_WARNINGS
    _, text, category = filter_.split(":")
    assert [str(each.message) for each in caught] == [text]
    assert [each.category.__name__ for each in caught] == [category]


def test_without_an_accelerator_a_call_says_so(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    with pytest.raises(RuntimeError, match="no accelerator: enable the simulator"):
        reference.STAND_INS["_gather"]([torch.ones(2)], 0, 0)
