"""impl._legacy_names: views of complex tensors as real ones."""

import torch
from torch import nn

from impl._legacy_names import _handle_complex


def test_only_complex_tensors_are_viewed_as_real_ones():
    assert _handle_complex(torch.ones(2, dtype=torch.complex64)).shape == (2, 2)
    for tensor in (torch.ones(2), nn.UninitializedParameter()):
        assert _handle_complex(tensor) is tensor
