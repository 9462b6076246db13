"""poutyne: its ``Model``, which calls ``data_parallel`` if it has several devices."""

import torch
from poutyne import Model
from torch import nn

from impl_tests.consumers.record import Record, make_record


def train() -> Record:
    """Train for two epochs, evaluate and predict; the last batch of an epoch has fewer rows."""
    torch.manual_seed(0)
    x, y = torch.randn(22, 4), torch.arange(22) % 2
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    devices = [torch.device("sim:0"), torch.device("sim:1")]
    model = Model(net, "adam", "cross_entropy", batch_metrics=["accuracy"], device=devices)
    history = model.fit(x, y, validation_data=(x, y), epochs=2, batch_size=6, verbose=False)
    losses = [epoch[key] for epoch in history for key in ("loss", "acc", "val_loss", "val_acc")]
    losses += model.evaluate(x, y, batch_size=6, verbose=False)
    losses += model.predict(x, batch_size=6, verbose=False).flatten().tolist()
    return make_record(losses, net, torch.nn.parallel.data_parallel)
