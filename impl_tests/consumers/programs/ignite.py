"""ignite: engines that train, evaluate and save a model wrapped by ``idist.auto_model``."""

import tempfile
from pathlib import Path
from typing import Any

import ignite.distributed
import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, EMAHandler
from ignite.metrics import Accuracy, Loss
from torch import nn

from impl_tests.consumers.record import Record, record


class _Device:
    """The first simulated device, with the type cuda: ``auto_model`` wraps for no other type."""

    type = "cuda"

    def __eq__(self, other: object) -> bool:
        return other == torch.device("sim:0")


class _Overrides:
    """A Python module with some attributes replaced."""

    def __init__(self, module: Any, **others: Any) -> None:
        self._module = module
        vars(self).update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))


def _wrap(net: nn.Module) -> nn.Module:
    """Wrap ``net`` as ``auto_model`` does if it counts several CUDA devices."""
    auto = ignite.distributed.auto
    auto.torch = _Overrides(torch, cuda=torch.accelerator)
    auto.idist = _Overrides(ignite.distributed, device=_Device)
    wrapped: nn.Module = auto.auto_model(net)
    return wrapped


def train() -> Record:
    """Train two epochs of four batches, the last of them shorter; record the saved models."""
    torch.manual_seed(0)
    x, y = torch.randn(22, 4), torch.arange(22) % 2
    batches = list(zip(torch.split(x, 6), torch.split(y, 6), strict=True))
    net, criterion = _wrap(_network().to("sim:0")), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    trainer = create_supervised_trainer(net, optimizer, criterion, device="sim:0")
    average = EMAHandler(net, momentum=0.1)
    average.attach(trainer)
    metrics = {"accuracy": Accuracy(), "loss": Loss(criterion)}
    losses: list[float] = []

    def append_loss(engine: Engine) -> None:
        losses.append(engine.state.output)

    def evaluate() -> None:
        for model in (net, average.ema_model):
            evaluator = create_supervised_evaluator(model, metrics, device="sim:0")
            losses.extend(evaluator.run(batches).metrics.values())

    trainer.add_event_handler(Events.ITERATION_COMPLETED, append_loss)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, evaluate)
    with tempfile.TemporaryDirectory() as folder:
        saved = {"net": net, "average": average.ema_model}
        trainer.add_event_handler(Events.COMPLETED, Checkpoint(saved, folder))
        trainer.run(batches, max_epochs=2)
        (path,) = Path(folder).iterdir()
        loaded = nn.ModuleDict({name: _network() for name in saved})
        Checkpoint.load_objects(dict(loaded), torch.load(path))
    return record(losses, loaded, type(net))
