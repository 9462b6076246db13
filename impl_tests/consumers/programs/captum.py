"""captum: attributions of a wrapped classifier, to its inputs and to its layers."""

import torch
from captum import attr
from torch import Tensor, nn

from impl_tests.consumers.record import Record, make_record, step


class Net(nn.Module):
    """A convolution and a linear layer. DeepLift requires that each module is used only once."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.relu = nn.ReLU()
        self.out = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of images of 4 x 4 pixels."""
        scores: Tensor = self.out(self.relu(self.conv(x)).flatten(1))
        return scores


def train() -> Record:
    """Train five steps, then compute attributions to pixels and channels."""
    torch.manual_seed(0)
    net = nn.DataParallel(Net().to("sim:0"), device_ids=[0, 1])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, truth = torch.randn(5, 1, 4, 4).to("sim:0"), (torch.arange(5) % 3).to("sim:0")
    losses = []
    for _ in range(5):
        loss = nn.functional.cross_entropy(net(x), truth)
        losses.append(step(optimizer, loss))
    for attribution in _compute_attributions(net, net.module.conv, x, truth):
        losses += attribution.detach().flatten(1).norm(dim=1).tolist()
    return make_record(losses, net.module, type(net))


def _compute_attributions(
    net: nn.Module, conv: nn.Module, x: Tensor, truth: Tensor
) -> list[Tensor]:
    """Return the attributions of methods that use module hooks, gradients or changed inputs."""
    baseline = torch.zeros_like(x)
    return [
        attr.Saliency(net).attribute(x, target=truth),
        attr.IntegratedGradients(net).attribute(x, target=truth, n_steps=4),
        attr.DeepLift(net).attribute(x, baseline, target=truth),
        attr.GuidedBackprop(net).attribute(x, target=truth),
        attr.FeatureAblation(net).attribute(x, target=truth, perturbations_per_eval=2),
        attr.LayerActivation(net, conv).attribute(x),
        attr.LayerGradCam(net, conv).attribute(x, target=truth),
        attr.LayerConductance(net, conv).attribute(x, target=truth, n_steps=4),
        attr.LayerIntegratedGradients(net, conv).attribute(x, target=truth, n_steps=4),
        attr.LayerDeepLift(net, conv).attribute(x, baseline, target=truth),
        attr.NeuronGradient(net, conv).attribute(x, (0, 1, 1)),
    ]
