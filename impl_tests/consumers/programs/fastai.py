"""fastai: the callback ``ParallelTrainer``, which wraps the model during ``fit``."""

import torch
from fastai.basics import DataLoader, DataLoaders, Learner
from fastai.distributed import ParallelTrainer
from torch import nn
from torch.utils.data import TensorDataset

from impl_tests.consumers.record import Record, make_record


def train() -> Record:
    """Train for two epochs of four batches; the last batch of an epoch has fewer rows."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(22, 4), torch.arange(22) % 2)
    loaders = DataLoaders(
        DataLoader(data, batch_size=6), DataLoader(data, batch_size=6), device="sim:0"
    )
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    learner = Learner(loaders, net.to("sim:0"), loss_func=nn.CrossEntropyLoss(), lr=0.1)
    learner.add_cb(ParallelTrainer([0, 1]))
    with learner.no_bar(), learner.no_logging():
        learner.fit(2)
    losses = [loss.item() for loss in learner.recorder.losses]
    losses += [value for epoch in learner.recorder.values for value in epoch]
    return make_record(losses, learner.model, torch.nn.DataParallel)
