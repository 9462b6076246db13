"""impl.parallel_apply under torch.jit.trace."""

import pytest
import torch
from torch import nn

from impl import parallel_apply


@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
@pytest.mark.parametrize("count", [1, 2])
def test_a_trace_may_record_one_module_only(topology, count):
    device = topology.device(0)
    module, x = nn.Linear(2, 2).to(device).requires_grad_(False), torch.ones(3, 2, device=device)

    def run(x):
        return parallel_apply([module] * count, [(x,)] * count)[0]

    if count == 1:
        traced = torch.jit.trace(run, x)
        torch.testing.assert_close(traced(2 * x), module(2 * x))
    else:
        with pytest.raises(RuntimeError, match=r"torch\.jit\.trace"):
            torch.jit.trace(run, x)
