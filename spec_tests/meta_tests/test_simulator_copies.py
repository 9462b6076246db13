"""Copies between devices are copies, whatever their types and strides."""

import itertools

import numpy
import pytest
import torch
from torch.utils.data import DataLoader

pytestmark = pytest.mark.usefixtures("sim")

PLACES = ("cpu", "sim:0", "sim:1", "sim:3")
ROUTES = list(itertools.permutations(PLACES, 2))
LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(1, 2),
    "channels-last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "sliced": lambda x: x[:, 1:, ::2],
    "expanded": lambda x: x[:1].expand(3, 3, 4, 5),
    "without elements": lambda x: x[:0],
    "without dimensions": lambda x: x[0, 0, 0, 0],
    "conjugated": lambda x: torch.complex(x, x).conj(),
    "negated": lambda x: torch.complex(x, x).conj().imag,
}


def source(layout, device):
    return LAYOUTS[layout](torch.arange(120.0, device=device).reshape(2, 3, 4, 5))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("origin", "goal"), ROUTES)
def test_copies_keep_numbers_and_strides(layout, origin, goal):
    x = source(layout, origin)
    y = x.to(goal)
    assert str(y.device) == goal
    assert y.cpu().equal(x.cpu())
    assert y.stride() == source(layout, "cpu").to("meta").stride()


@pytest.mark.parametrize(("origin", "goal"), ROUTES)
def test_copies_share_nothing(origin, goal):
    x = torch.ones(3, device=origin)
    y = x.to(goal)
    x.zero_()
    assert y.tolist() == [1, 1, 1]
    y.fill_(2)
    assert x.tolist() == [0, 0, 0]
    assert x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr()


@pytest.mark.parametrize("method", ["cpu", "numpy", "tolist"])
def test_nothing_of_the_host_shares_memory_with_a_device(method):
    x = torch.zeros(3, device="sim:1")
    kept = getattr(x.cpu() if method == "numpy" else x, method)()
    x.fill_(1)
    assert list(kept) == [0, 0, 0]
    array = numpy.zeros(3)
    y = torch.from_numpy(array).to("sim:1")
    array[:] = 1
    assert y.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("origin", "goal"), ROUTES)
def test_copying_into_a_view_converts_and_broadcasts(origin, goal):
    target = torch.zeros(3, 4, device=goal)
    target.t()[1:3].copy_(torch.arange(3, device=origin))
    assert target.tolist() == [[0, 0, 0, 0], [0, 1, 1, 0], [0, 2, 2, 0]]


@pytest.mark.parametrize(("origin", "goal"), ROUTES)
def test_gradients_go_back_where_they_belong(origin, goal):
    x = torch.arange(3.0, device=origin, requires_grad=True)
    (x.to(goal) ** 2).sum().backward()
    assert str(x.grad.device) == origin
    assert x.grad.tolist() == [0, 2, 4]


def test_a_tensor_already_there_is_not_copied():
    x = torch.ones(3, device="sim:1")
    assert x.to("sim:1") is x
    assert x.sim(1) is x
    assert x.to("sim:1", copy=True) is not x


def test_sim_without_a_number_is_the_current_device():
    with torch.accelerator.device_index(2):
        assert str(torch.ones(3).sim().device) == "sim:2"
        assert str(torch.ones(3).to("sim").device) == "sim:2"


def test_numpy_is_refused():
    with pytest.raises(TypeError, match="can't convert sim:1 device type tensor to numpy"):
        torch.ones(3, device="sim:1").numpy()


def test_pinned_memory_is_host_memory():
    x = torch.arange(3.0).pin_memory()
    assert x.is_pinned()
    assert not torch.arange(3.0).is_pinned()
    y = x.to("sim:1", non_blocking=True)
    assert not y.is_pinned()
    x.zero_()
    assert y.tolist() == [0, 1, 2]
    if hasattr(torch.accelerator, "empty_host_cache"):  # From PyTorch 2.12 on.
        torch.accelerator.empty_host_cache()
    for batch in DataLoader(torch.arange(4.0), batch_size=2, pin_memory=True):
        assert batch.is_pinned()


def test_meta_tensors_come_and_go():
    x = torch.ones(3, device="sim:1").to("meta")
    assert str(torch.empty_like(x, device="sim:2").device) == "sim:2"
