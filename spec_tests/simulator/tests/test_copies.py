"""Copies between devices: values, strides and separate memory."""

import itertools

import numpy
import pytest
import torch
from torch.utils.data import DataLoader

pytestmark = pytest.mark.usefixtures("sim")

DEVICES = ("cpu", "sim:0", "sim:1", "sim:3")
ROUTES = list(itertools.permutations(DEVICES, 2))


@pytest.mark.parametrize(("source", "destination"), ROUTES)
def test_copies_share_no_memory(source, destination):
    x = torch.ones(3, device=source)
    y = x.to(destination)
    x.zero_()
    assert y.tolist() == [1, 1, 1]
    y.fill_(2)
    assert x.tolist() == [0, 0, 0]
    assert x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr()


@pytest.mark.parametrize("method", ["cpu", "numpy", "tolist"])
def test_host_copies_share_no_memory_with_the_device(method):
    x = torch.zeros(3, device="sim:1")
    copied = getattr(x.cpu() if method == "numpy" else x, method)()
    x.fill_(1)
    assert list(copied) == [0, 0, 0]
    array = numpy.zeros(3)
    y = torch.from_numpy(array).to("sim:1")
    array[:] = 1
    assert y.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("source", "destination"), ROUTES)
def test_copying_into_a_view_converts_the_dtype_and_broadcasts(source, destination):
    target = torch.zeros(3, 4, device=destination)
    target.t()[1:3].copy_(torch.arange(3, device=source))
    assert target.tolist() == [[0, 0, 0, 0], [0, 1, 1, 0], [0, 2, 2, 0]]


@pytest.mark.parametrize(("source", "destination"), ROUTES)
def test_gradient_is_on_the_device_of_the_leaf(source, destination):
    x = torch.arange(3.0, device=source, requires_grad=True)
    (x.to(destination) ** 2).sum().backward()
    assert str(x.grad.device) == source
    assert x.grad.tolist() == [0, 2, 4]


def test_tensor_already_on_the_device_is_not_copied():
    x = torch.ones(3, device="sim:1")
    assert x.to("sim:1") is x
    assert x.sim(1) is x
    assert x.to("sim:1", copy=True) is not x


def test_sim_without_an_index_is_the_current_device():
    with torch.accelerator.device_index(2):
        assert str(torch.ones(3).sim().device) == "sim:2"
        assert str(torch.ones(3).to("sim").device) == "sim:2"


def test_pinned_memory_is_host_memory():
    x = torch.arange(3.0).pin_memory()
    assert x.is_pinned()
    assert not torch.arange(3.0).is_pinned()
    y = x.to("sim:1", non_blocking=True)
    assert not y.is_pinned()
    x.zero_()
    assert y.tolist() == [0, 1, 2]
    if hasattr(torch.accelerator, "empty_host_cache"):  # New in PyTorch 2.12.
        torch.accelerator.empty_host_cache()
    for batch in DataLoader(torch.arange(4.0), batch_size=2, pin_memory=True):
        assert batch.is_pinned()


def test_tensors_convert_to_and_from_meta():
    x = torch.ones(3, device="sim:1").to("meta")
    assert str(torch.empty_like(x, device="sim:2").device) == "sim:2"
