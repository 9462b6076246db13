"""Views, ``out=`` and resized tensors share memory on sim if they share it on the CPU.

The chapter `devices` writes to views in many ways.
"""

import pytest
import torch

from spec_tests.simulator.tests.agreement import DEVICE, assert_same

pytestmark = pytest.mark.usefixtures("sim")

VIEWS = {
    "slice": lambda x: x[1:3, ::2],
    "as_strided": lambda x: x.as_strided((2, 3), (2, 1), 1),
    "unfold": lambda x: x.unfold(1, 3, 3),
    "view": lambda x: x.view(3, 8),
    "flatten": lambda x: x.unsqueeze(0).flatten(),
    "detach": lambda x: x.detach(),
    "as int32": lambda x: x.view(torch.int32),
    "conjugate": lambda x: torch.view_as_complex(x.view(4, 3, 2)).conj(),
    "negated imaginary part": lambda x: torch.view_as_complex(x.view(4, 3, 2)).conj().imag,
    "negated": lambda x: torch._neg_view(x),
    "unsafe chunk": lambda x: torch.unsafe_chunk(x, 2)[1],
}
START = torch.arange(1.0, 25).reshape(4, 6)


@pytest.fixture
def cpu_and_sim():
    return START.clone(), START.to(DEVICE)


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory_and_have_the_strides_and_versions_of_the_cpu(name, cpu_and_sim):
    on_cpu, on_sim = (VIEWS[name](x) for x in cpu_and_sim)
    assert_same(on_cpu, on_sim)
    assert on_sim.storage_offset() == on_cpu.storage_offset()
    for view in (on_cpu, on_sim):
        view.mul_(3)
    assert_same(*cpu_and_sim)
    assert cpu_and_sim[0]._version == cpu_and_sim[1]._version
    assert not cpu_and_sim[0].equal(START)


def test_backward_through_a_modified_view_agrees_with_the_cpu(cpu_and_sim):
    for x in cpu_and_sim:
        y = x.requires_grad_() * 1
        y.diagonal().mul_(3)
        (y * y).sum().backward()
    assert_same(cpu_and_sim[0].grad, cpu_and_sim[1].grad)


@pytest.mark.parametrize(
    ("make", "stride", "offset"),
    [
        (lambda: torch.empty(0, device=DEVICE), (6, 1), 0),
        (lambda: torch.empty(9, device=DEVICE)[2:2], (6, 1), 2),
        (lambda: torch.empty(6, 4, device=DEVICE).t(), (1, 4), 0),
    ],
    ids=["empty", "empty with an offset", "of the right shape"],
)
def test_out_is_resized_if_its_shape_is_wrong(cpu_and_sim, make, stride, offset):
    out = make()
    torch.mul(cpu_and_sim[1], 2, out=out)
    assert out.tolist() == (cpu_and_sim[0] * 2).tolist()
    assert (out.stride(), out.storage_offset()) == (stride, offset)


def test_out_has_the_lazy_conjugation_of_the_cpu_result():
    results = []
    for device in ("cpu", DEVICE):
        x, y = (START[:size, :4].to(device, torch.complex64) * 1j for size in (4, 2))
        out = torch.empty(2, 4, dtype=torch.complex64, device=device)
        factors = torch.linalg.lu_factor(x + 30 * torch.eye(4, device=device))
        torch.linalg.lu_solve(*factors, y, left=False, out=out)
        results.append(out)
    assert_same(*results)


def test_memory_format_and_values_are_kept_by_a_resize():
    x = torch.arange(8.0, device=DEVICE)
    nhwc = x.resize_(1, 2, 2, 3, memory_format=torch.channels_last)
    assert nhwc.is_contiguous(memory_format=torch.channels_last)
    assert nhwc.untyped_storage()[4] == torch.arange(8.0).untyped_storage()[4]
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0


def test_set_shares_memory_with_the_source():
    x = torch.arange(6.0, device=DEVICE)
    y = torch.empty(0, device=DEVICE).set_(x.untyped_storage(), 2, (2,), (2,))
    y.zero_()
    assert x.tolist() == [0, 1, 0, 3, 0, 5]
    assert y.set_(x).data_ptr() == x.data_ptr()
    assert str(y.set_().device) == DEVICE
