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

from impl_tests.consumers.record import Record, make_record


class _CudaTypedDevice:
    """The first simulated device, with the type cuda. ``auto_model`` wraps only for this type."""

    type = "cuda"

    def __eq__(self, other: object) -> bool:
        return other == torch.device("sim:0")


class _PatchedModule:
    """A Python module with some attributes replaced."""

    def __init__(self, module: Any, **replacements: Any) -> None:
        self._module = module
        vars(self).update(replacements)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _build_network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))


def _wrap(net: nn.Module) -> nn.Module:
    """Wrap ``net`` with ``auto_model``, patched to find several CUDA devices."""
    auto = ignite.distributed.auto
    auto.torch = _PatchedModule(torch, cuda=torch.accelerator)
    auto.idist = _PatchedModule(ignite.distributed, device=_CudaTypedDevice)
    wrapped: nn.Module = auto.auto_model(net)
    return wrapped


def train() -> Record:
    """Train for two epochs of four batches; return the weights of the loaded checkpoint."""
    torch.manual_seed(0)
    x, y = torch.randn(22, 4), torch.arange(22) % 2
    batches = list(zip(torch.split(x, 6), torch.split(y, 6), strict=True))
    net, criterion = _wrap(_build_network().to("sim:0")), nn.CrossEntropyLoss()
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
        loaded = nn.ModuleDict({name: _build_network() for name in saved})
        Checkpoint.load_objects(dict(loaded), torch.load(path))
    return make_record(losses, loaded, type(net))
