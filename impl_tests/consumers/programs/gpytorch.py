"""GPyTorch: the rows of a covariance matrix on several devices, by a subclass of DataParallel."""

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import MultiDeviceKernel, RBFKernel, ScaleKernel

from impl_tests.consumers.record import Record, make_record, step


class Model(gpytorch.models.ExactGP):  # type: ignore[misc] # the package has no types
    """A Gaussian process whose kernel is on two devices."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: object) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        devices = [torch.device("sim:0"), torch.device("sim:1")]
        self.covar_module = MultiDeviceKernel(
            ScaleKernel(RBFKernel()), device_ids=devices, output_device=devices[0]
        )

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        """Return the prior distribution at ``x``."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def train() -> Record:
    """Fit the hyperparameters, then predict."""
    torch.manual_seed(0)
    x = torch.linspace(0, 1, 21, device="sim:0").unsqueeze(-1)
    y = (6 * x.squeeze(-1)).sin() + 0.1 * torch.randn(21).to("sim:0")
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to("sim:0")
    model = Model(x, y, likelihood).to("sim:0")
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = []
    # GPyTorch solves large matrices by conjugate gradients, without the whole matrix on a device.
    with gpytorch.settings.max_cholesky_size(0), gpytorch.settings.cg_tolerance(1e-3):
        for _ in range(5):
            losses.append(step(optimizer, -objective(model(x), y)))
        model.eval()
        with (
            torch.no_grad(),
            gpytorch.settings.max_eager_kernel_size(0),
            gpytorch.settings.skip_posterior_variances(),
        ):
            losses += model(x[:5] + 0.01).mean.tolist()
    return make_record(losses, model, MultiDeviceKernel)
