"""impl._move_chunks: no copy begins before all tensors are split."""

import pytest
import torch

from impl import scatter
from spec_tests.checks.stream_log import CopyLog


class Unsplit(torch.Tensor):
    """A subclass that refuses to be split."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if "chunk" in function.__name__:
            raise NotImplementedError(function.__name__)
        return super().__torch_function__(function, types, args, kwargs)


def test_no_tensor_is_copied_if_one_cannot_be_split(topology):
    unsplit = torch.ones(4).as_subclass(Unsplit)
    log = CopyLog()
    with log, pytest.raises(NotImplementedError):
        scatter([torch.ones(4), unsplit], topology.take(2))
    assert log.streams == []
