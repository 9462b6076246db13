"""impl.SyncBatchNorm: replicas in different grad modes.

spec_tests/divergences/test_batch_norm.py compares the layer with batch norm of the whole batch.
"""

import copy
import time

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from impl import DataParallel, SyncBatchNorm
from spec_tests.harness.compare import checks

MODES = st.lists(st.booleans(), min_size=2, max_size=4)


class InModes(nn.Module):
    """Batch norm in the grad mode that the first column of a chunk names, after a delay."""

    def __init__(self, late):
        super().__init__()
        self.norm, self.late = SyncBatchNorm(3), late

    def forward(self, x):
        index, mode = x[0, :2].tolist()
        time.sleep(0.01 * (index == self.late))
        with torch.set_grad_enabled(bool(mode)):
            return self.norm(x)


def rows_of(modes):
    """Return two rows for each replica: its index, its mode, and another number."""
    rows = [[index, mode, index % 3 + row] for index, mode in enumerate(modes) for row in range(2)]
    return torch.tensor(rows, dtype=torch.float32)


@pytest.mark.parametrize("on_cpu", [True, False], ids=["lanes", "devices"])
@given(modes=MODES.filter(lambda modes: len({*modes}) == 2), late=st.integers(0, 3))
@example(modes=[True, False], late=0)
@example(modes=[True, False], late=1)
def test_replicas_in_different_grad_modes_are_refused(topology, on_cpu, modes, late):
    devices = ["cpu"] * len(modes) if on_cpu else topology.take(len(modes))
    wrapper = DataParallel(InModes(late).to(devices[0]), devices)
    with pytest.raises(RuntimeError) as caught:
        wrapper(rows_of(modes).to(devices[0]))
    on, off = ([i for i, mode in enumerate(modes) if mode is each] for each in (True, False))
    text = f"SyncBatchNorm 'norm' .*grad mode is on in replicas {on}, and off in replicas {off}"
    assert caught.match(text.replace("[", r"\[").replace("]", r"\]"))
    assert "in replica 0 on device" in str(caught.value)


@given(mode=st.booleans(), count=st.integers(2, 4), late=st.integers(0, 3))
def test_replicas_may_change_the_grad_mode_together(topology, mode, count, late):
    devices = topology.take(count)
    net = InModes(late).to(devices[0])
    alone, x = copy.deepcopy(net), rows_of([mode] * count).to(devices[0])
    outputs = DataParallel(net, devices)(x), alone(x)
    assert [each.requires_grad for each in outputs] == [mode] * 2
    assert torch.allclose(*outputs, atol=checks.LAYER)
