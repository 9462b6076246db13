"""torchmeta: MAML, with a subclass that passes copies of updated parameters to each replica."""

from typing import Any

import torch
from torch import Tensor, nn
from torchvision.datasets import utils

from impl_tests.consumers.record import Record, make_record, step

# torchmeta imports two functions that torchvision has removed. Only downloads call them.
vars(utils).update(_get_confirm_token=None, _save_response_content=None)

from torchmeta.modules import DataParallel, MetaLinear, MetaModule, MetaSequential  # noqa: E402 # needs the names above
from torchmeta.utils.gradient_based import gradient_update_parameters  # noqa: E402 # needs the names above


class Net(MetaModule):  # type: ignore[misc] # the package is not installed for mypy
    """Two layers whose parameters can be passed to ``forward``."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = MetaSequential(MetaLinear(1, 16), nn.Tanh(), MetaLinear(16, 1))

    def forward(self, x: Tensor, params: Any = None) -> Tensor:
        """Return the output with ``params``, by default the module's parameters."""
        values: Tensor = self.layers(x, params=self.get_subdict(params, "layers"))
        return values


def train() -> Record:
    """Learn five sinusoids. For each, differentiate through one inner training step."""
    torch.manual_seed(0)
    net = DataParallel(Net().to("sim:0"), device_ids=[0, 1])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for phase in range(5):
        x = torch.rand(11, 1).to("sim:0")
        y = (6 * x + phase).sin()
        inner = nn.functional.mse_loss(net(x[:5]), y[:5])
        params = gradient_update_parameters(net, inner, step_size=0.1)
        loss = nn.functional.mse_loss(net(x[5:], params=params), y[5:])
        losses += [inner.item(), step(optimizer, loss)]
    return make_record(losses, net.module, type(net))
