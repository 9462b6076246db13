"""``cuda_stand_ins.enable``: which primitives of ``torch._C`` it adds, replaces and keeps."""

import warnings

import pytest
import torch
import torch.nn.parallel

from spec_tests import cuda_stand_ins
from spec_tests.harness.environment.topology import not_run


@pytest.mark.parametrize(
    ("version", "accelerator", "is_kept"),
    [(None, "sim", True), ("13.2", "cuda", True), ("13.2", "sim", False)],
)
def test_enable_replaces_only_primitives_of_a_cuda_build_on_another_accelerator(
    topology, monkeypatch, version, accelerator, is_kept
):
    for name, stand_in in cuda_stand_ins.STAND_INS.items():
        monkeypatch.setattr(torch._C, name, stand_in)
    monkeypatch.setattr(torch._C, "_gather", print)
    monkeypatch.setattr(torch.version, "cuda", version)
    monkeypatch.setattr(cuda_stand_ins, "accelerator_type", lambda: accelerator)
    monkeypatch.setattr(cuda_stand_ins, "accept_this_accelerator", lambda: None)
    cuda_stand_ins.enable()
    assert torch._C._gather is (print if is_kept else cuda_stand_ins.STAND_INS["_gather"])


def test_enable_adds_missing_primitives(topology, monkeypatch):
    for name in cuda_stand_ins.STAND_INS:
        monkeypatch.delattr(torch._C, name)
    monkeypatch.setattr(cuda_stand_ins, "accept_this_accelerator", lambda: None)
    cuda_stand_ins.enable()
    assert {name: getattr(torch._C, name) for name in cuda_stand_ins.STAND_INS} == dict(
        cuda_stand_ins.STAND_INS
    )


def test_reduce_add_warns_only_about_nccl(topology):
    topology.require(distinct=2)
    if torch.version.cuda is not None:
        not_run("the warning belongs to builds without NCCL")
    inputs = [torch.ones(2, device=device) for device in topology.take(2)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.nn.parallel.comm.reduce_add(inputs, inputs[0].get_device())
    _, text, category = cuda_stand_ins.IGNORED_WARNINGS[0].split(":")
    assert [str(each.message) for each in caught] == [text]
    assert [each.category.__name__ for each in caught] == [category]


def test_a_stand_in_without_an_accelerator_raises(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    with pytest.raises(RuntimeError, match="no accelerator: enable the simulator"):
        cuda_stand_ins.STAND_INS["_gather"]([torch.ones(2)], 0, 0)


def test_parallel_apply_refuses_the_cpu_and_names_the_accelerator(topology):
    cuda_stand_ins.enable()
    text = f"Expected a {topology.accelerator} device, but got: cpu"
    with pytest.raises(ValueError, match=text):
        torch.nn.parallel.parallel_apply([torch.nn.Identity()], [torch.ones(1)], devices=["cpu"])
