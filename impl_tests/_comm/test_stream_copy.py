"""impl._comm.stream_copy: what is said of a stream that does not fit."""

import pytest
import torch

from impl import comm


def test_a_stream_of_another_device_is_told_by_the_number_of_that(topology):
    topology.require(distinct=2)
    home, other = topology.take(2)
    stream = torch.Stream(other)
    text = rf"at index 0 \(was {other.index}\) .* \(expected {home.index}\)"
    with pytest.raises(RuntimeError, match=text):
        comm.scatter(torch.ones(2), [home], streams=[stream])
