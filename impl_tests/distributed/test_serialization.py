"""impl.distributed.serialization: tensors as bytes, and their alignment."""

import pytest
import torch

from impl.distributed.serialization import TensorMeta, copy_to_bytes, count_bytes, view_tensors
from impl_tests.helpers.alignment import DTYPES, misaligned, ones

CPU = torch.device("cpu")


@pytest.fixture
def filled_memory():
    """Make PyTorch fill uninitialized tensors, so that no byte is zero by chance."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("filled_memory")
def test_padding_is_zero():
    """Buffers count as changed if their bytes differ between the ranks."""
    tensors = [torch.ones(3), torch.ones(1)]
    size = count_bytes([TensorMeta.from_tensor(tensor) for tensor in tensors], CPU)
    data = copy_to_bytes(tensors, size, CPU)
    assert (
        data.count_nonzero() == 2 * 4
    )  # Each of four floats 1.0 has two bytes that are not zero.


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("slot", [None, 0], ids=["cpu", "accelerator"])
def test_tensors_from_other_ranks_are_aligned(topology, dtype, slot):
    device = topology.device(slot)
    sent = ones(CPU, dtype)
    metas = list(map(TensorMeta.from_tensor, sent))
    size = count_bytes(metas, device)
    received = view_tensors(copy_to_bytes(sent, size, device), metas)
    assert misaligned(received) == []
    assert all(map(torch.equal, sent, (each.cpu() for each in received)))
