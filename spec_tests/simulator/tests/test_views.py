"""Views, in-place operators and ``out=`` share memory on sim if they share it on the CPU."""

import pytest
import torch

from spec_tests.simulator.tests.agreement import DEVICE, assert_same

pytestmark = pytest.mark.usefixtures("sim")

VIEWS = {
    "slice": lambda x: x[1:3, ::2],
    "transpose": lambda x: x.t(),
    "expand": lambda x: x[:, :1].expand(4, 5),
    "as_strided": lambda x: x.as_strided((2, 3), (2, 1), 1),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "view": lambda x: x.view(3, 8),
    "reshape": lambda x: x.reshape(2, 12),
    "flatten": lambda x: x.unsqueeze(0).flatten(),
    "diagonal": lambda x: x.diagonal(),
    "chunk": lambda x: x.chunk(2, 1)[1],
    "detach": lambda x: x.detach(),
    "as int32": lambda x: x.view(torch.int32),
    "as bytes": lambda x: x.view(torch.uint8),
    "as complex": lambda x: torch.view_as_complex(x.view(4, 3, 2)),
    "conjugate": lambda x: torch.view_as_complex(x.view(4, 3, 2)).conj(),
    "real part": lambda x: torch.view_as_complex(x.view(4, 3, 2)).real,
    "negated imaginary part": lambda x: torch.view_as_complex(x.view(4, 3, 2)).conj().imag,
    "negated": lambda x: torch._neg_view(x),
}
IN_PLACE = {
    "add_": lambda x: x.add_(2),
    "mul_": lambda x: x.mul_(3),
    "copy_": lambda x: x.copy_(x.flip(0)),
    "fill_": lambda x: x.fill_(1),
    "zero_": lambda x: x.select(0, 0).zero_(),
}
START = torch.arange(1.0, 25).reshape(4, 6)


@pytest.fixture
def cpu_and_sim():
    return START.clone(), START.to(DEVICE)


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory_and_have_the_strides_of_the_cpu(name, cpu_and_sim):
    on_cpu, on_sim = (VIEWS[name](x) for x in cpu_and_sim)
    assert_same(on_cpu, on_sim)
    assert on_sim.storage_offset() == on_cpu.storage_offset()
    assert on_sim.untyped_storage().data_ptr() == cpu_and_sim[1].untyped_storage().data_ptr()


@pytest.mark.parametrize("change", IN_PLACE)
@pytest.mark.parametrize("name", [name for name in VIEWS if name != "expand"])
def test_writing_through_a_view_changes_the_base(name, change, cpu_and_sim):
    for x in cpu_and_sim:
        IN_PLACE[change](VIEWS[name](x))
    assert_same(*cpu_and_sim)
    assert not cpu_and_sim[0].equal(START)


@pytest.mark.parametrize("change", IN_PLACE)
def test_version_counters_agree_with_the_cpu(change, cpu_and_sim):
    for x in cpu_and_sim:
        IN_PLACE[change](x[1:])
    assert cpu_and_sim[0]._version == cpu_and_sim[1]._version > 0


@pytest.mark.parametrize("name", ["slice", "transpose", "diagonal", "view", "as_strided"])
def test_backward_through_modified_views_agrees_with_the_cpu(name, cpu_and_sim):
    for x in cpu_and_sim:
        x.requires_grad_()
        y = x * 1
        VIEWS[name](y).mul_(3)
        (y * y).sum().backward()
    assert_same(cpu_and_sim[0].grad, cpu_and_sim[1].grad)


@pytest.mark.parametrize("capacity", [0, 24])
def test_an_empty_out_is_resized(capacity, cpu_and_sim):
    out = torch.empty(capacity, device=DEVICE).resize_(0)
    torch.mul(cpu_and_sim[1], 2, out=out)
    assert out.tolist() == (cpu_and_sim[0] * 2).tolist()
    assert out.stride() == (6, 1)


def test_an_out_of_the_right_shape_keeps_its_strides(cpu_and_sim):
    out = torch.empty(6, 4, device=DEVICE).t()
    torch.mul(cpu_and_sim[1], 2, out=out)
    assert out.tolist() == (cpu_and_sim[0] * 2).tolist()
    assert out.stride() == (1, 4)


def test_resized_out_keeps_its_offset():
    storage = torch.zeros(10, device=DEVICE)
    out = storage[2:2]
    torch.arange(0, 20, out=out)
    assert out.storage_offset() == 2
    assert out.tolist() == list(range(20))


def test_out_has_the_lazy_conjugation_of_the_cpu_result():
    results = []
    for device in ("cpu", DEVICE):
        x, y = (START[:size, :4].to(device, torch.complex64) * 1j for size in (4, 2))
        out = torch.empty(2, 4, dtype=torch.complex64, device=device)
        factors = torch.linalg.lu_factor(x + 30 * torch.eye(4, device=device))
        torch.linalg.lu_solve(*factors, y, left=False, out=out)
        results.append(out)
    assert_same(*results)


def test_resize_accepts_a_memory_format():
    x = torch.arange(8.0, device=DEVICE)
    nhwc = x.resize_(1, 2, 2, 2, memory_format=torch.channels_last)
    assert nhwc.is_contiguous(memory_format=torch.channels_last)


def test_storage_can_be_resized_to_zero():
    x = torch.arange(6.0, device=DEVICE)
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0


def test_set_shares_memory_with_the_source():
    x = torch.arange(6.0, device=DEVICE)
    y = torch.empty(0, device=DEVICE).set_(x.untyped_storage(), 2, (2,), (2,))
    assert y.tolist() == [2, 4]
    y.zero_()
    assert x.tolist() == [0, 1, 0, 3, 0, 5]
    assert y.set_(x).data_ptr() == x.data_ptr()
    assert y.set_().numel() == 0
    assert str(y.device) == DEVICE


def test_results_that_share_memory_on_the_cpu_share_it_on_sim():
    on_cpu = torch.unsafe_chunk(START.clone(), 2)
    on_sim = torch.unsafe_chunk(START.to(DEVICE), 2)
    assert_same(on_cpu, on_sim)
    assert len({chunk.untyped_storage().data_ptr() for chunk in on_sim}) == 1
