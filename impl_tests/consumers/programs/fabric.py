"""Lightning Fabric: the strategy ``dp``, on an accelerator that is registered from outside."""

import torch
from lightning_fabric import Fabric
from lightning_fabric.accelerators import Accelerator
from lightning_fabric.strategies import DataParallelStrategy
from torch import nn

from impl_tests.consumers.record import Record, record


class SimAccelerator(Accelerator):  # type: ignore[misc] # the package is not installed for mypy
    """What Fabric asks of an accelerator."""

    def setup_device(self, device: torch.device) -> None:
        """Make ``device`` current."""
        torch.accelerator.set_device_index(device.index)

    def teardown(self) -> None:
        """Do nothing."""

    @staticmethod
    def parse_devices(devices: int) -> int:
        """Take a number of devices."""
        return devices

    @staticmethod
    def get_parallel_devices(devices: int) -> list[torch.device]:
        """List the first devices."""
        return [torch.device("sim", ordinal) for ordinal in range(devices)]

    @staticmethod
    def auto_device_count() -> int:
        """Count the devices."""
        return torch.accelerator.device_count()

    @staticmethod
    def is_available() -> bool:
        """Tell whether there is a device."""
        return torch.accelerator.is_available()

    @staticmethod
    def name() -> str:
        """Name the accelerator."""
        return "sim"


def train() -> Record:
    """Train five steps, one with a short batch."""
    torch.manual_seed(0)
    fabric = Fabric(accelerator=SimAccelerator(), devices=2, strategy="dp")
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    losses = []
    for rows in (6, 5, 1, 4, 7):
        x = torch.randn(rows, 4).to(fabric.device)
        loss = (model(x) - x[:, :2]).square().mean()  # which row is which matters
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    assert isinstance(fabric.strategy, DataParallelStrategy)
    return record(losses, model.module, torch.nn.DataParallel)
