"""impl/distributed/serialization.py: tensors as bytes."""

import pytest
import torch

from impl.distributed.serialization import TensorMeta, copy_to_bytes, count_bytes

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
