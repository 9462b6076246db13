"""sync-batchnorm: replicas that wait for each other, to share the statistics of the batch."""

import torch
from sync_batchnorm import DataParallelWithCallback, convert_model
from torch import nn

from impl_tests.consumers.record import Record, make_record, step


def train() -> Record:
    """Train for five steps; the returned weights include the running statistics."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)
    )
    wrapped = DataParallelWithCallback(convert_model(net).to("sim:0"), device_ids=[0, 1])
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        images, truth = torch.randn(6, 3, 4, 4), torch.arange(6) % 2
        loss = nn.functional.cross_entropy(wrapped(images.to("sim:0")), truth.to("sim:0"))
        losses.append(step(optimizer, loss))
    return make_record(losses, wrapped.module, type(wrapped))
