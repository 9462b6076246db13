"""DataParallel: a training step of transformers' Trainer.

The Trainer passes all arguments by keyword. One of them is a tensor with one number per device.
"""

import pytest
import torch
from torch import nn

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.conformance.clauses import clause

#: Pairs: the number of devices, the number of rows in the batch.
SIZES = [(count, rows) for count in (2, 3, 4) for rows in range(1, 2 * count + 1)]


class Loss(nn.Module):
    """A module that divides the loss of its chunk by the number of items in the whole batch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, input_ids, labels, num_items_in_batch):
        errors = (self.layer(input_ids) - labels).square()
        return {"loss": errors.sum() / num_items_in_batch.sum(), "logits": errors}


def training_step(target, topology, count, rows):
    """Return the loss, outputs and gradients of one step."""
    torch.manual_seed(0)
    devices = topology.take(count)
    module = Loss().to(devices[0])
    batch = {
        "input_ids": torch.arange(3.0 * rows).reshape(rows, 3).to(devices[0]),
        "labels": torch.ones(rows, 2, device=devices[0]),
        "num_items_in_batch": torch.full((count, 1), rows, device=devices[0]),
    }
    output = target.data_parallel.DataParallel(module, devices)(**batch)
    output["loss"].sum().backward()
    found = [*output.values(), *(parameter.grad for parameter in module.parameters())]
    return snapshot(found, {}, strides=False)


@clause("data_parallel.per-device-argument")
@pytest.mark.filterwarnings("ignore:Was asked to gather along dimension 0")
@pytest.mark.parametrize(("count", "rows"), SIZES)
def test_a_trainer_step_equals_that_of_the_reference_for_any_batch_size(
    target, baselines, topology, count, rows
):
    found = training_step(target, topology, count, rows)
    for baseline in baselines:
        expected = training_step(baseline, topology, count, rows)
        checks.same(found, expected, (count, rows), tolerance=checks.LAYER)
