"""``out=``, resized tensors and ``set_`` on sim.

The chapter `devices` writes to views, and the operator sweep makes them.
"""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("sim")

DEVICE = "sim:2"
START = torch.arange(1.0, 25).reshape(4, 6)


@pytest.fixture
def cpu_and_sim():
    return START.clone(), START.to(DEVICE)


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
    on_cpu, on_sim = results
    assert on_sim.is_conj() == on_cpu.is_conj()
    torch.testing.assert_close(on_sim.cpu(), on_cpu, check_stride=True)


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
