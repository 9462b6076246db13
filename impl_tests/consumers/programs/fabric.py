"""Lightning Fabric: the strategy ``dp``, on a custom accelerator."""

import torch
from lightning_fabric import Fabric
from lightning_fabric.accelerators import Accelerator
from lightning_fabric.strategies import DataParallelStrategy
from torch import nn

from impl_tests.consumers.record import Record, make_record


class SimAccelerator(Accelerator):  # type: ignore[misc] # the package is not installed for mypy
    """The simulated devices as an accelerator of Fabric."""

    def setup_device(self, device: torch.device) -> None:
        """Make ``device`` current."""
        torch.accelerator.set_device_index(device.index)

    def teardown(self) -> None:
        """Do nothing."""

    @staticmethod
    def parse_devices(devices: int) -> int:
        """Return the number of devices unchanged."""
        return devices

    @staticmethod
    def get_parallel_devices(devices: int) -> list[torch.device]:
        """Return the first ``devices`` devices."""
        return [torch.device("sim", ordinal) for ordinal in range(devices)]

    @staticmethod
    def auto_device_count() -> int:
        """Return the number of devices."""
        return torch.accelerator.device_count()

    @staticmethod
    def is_available() -> bool:
        """Return whether there is a device."""
        return torch.accelerator.is_available()

    @staticmethod
    def name() -> str:
        """Return the name of the accelerator."""
        return "sim"


def train() -> Record:
    """Train five steps, one of them with a batch of one row."""
    torch.manual_seed(0)
    fabric = Fabric(accelerator=SimAccelerator(), devices=2, strategy="dp")
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    losses = []
    for rows in (6, 5, 1, 4, 7):
        x = torch.randn(rows, 4).to(fabric.device)
        loss = (model(x) - x[:, :2]).square().mean()  # The loss depends on the order of rows.
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    assert isinstance(fabric.strategy, DataParallelStrategy)
    return make_record(losses, model.module, torch.nn.DataParallel)
