"""Steps of training with frozen parameters, for wrappers with and without kept copies."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

import impl

__all__ = ["MODULES", "run_steps", "steps_of_training"]

#: The name of a mode, the name of a change before the forward, and the number of rows.
Step = tuple[str, str, int]


def _frozen(layer: nn.Module) -> nn.Module:
    return layer.requires_grad_(False)


class Tied(nn.Module):
    """A frozen layer before and after a layer that is trained, with one weight for both uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first = _frozen(nn.Linear(2, 2))
        self.inner = nn.Linear(2, 2)
        self.last = nn.Linear(2, 2)
        self.last.register_parameter("weight", self.first.get_parameter("weight"))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the three layers."""
        y: Tensor = self.last(torch.relu(self.inner(self.first(x))))
        return y


#: For each name: a function that builds a module.
MODULES: dict[str, Callable[[], nn.Module]] = {
    "frozen backbone": lambda: nn.Sequential(_frozen(nn.Linear(2, 2)), nn.Linear(2, 2)),
    "frozen head": lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU(), _frozen(nn.Linear(2, 2))),
    "frozen batch norm": lambda: nn.Sequential(nn.Linear(2, 2), _frozen(nn.BatchNorm1d(2))),
    "tied": Tied,
    "nothing frozen": lambda: nn.Linear(2, 2),
    "all frozen": lambda: _frozen(nn.Linear(2, 2)),
}


def _add_in_place(parameter: Tensor) -> None:
    parameter.add_(1)


def _set_data(parameter: Tensor) -> None:
    parameter.data = parameter.data.clone().add_(1)


def _transpose(parameter: Tensor) -> None:
    parameter.data = parameter.data.mT if parameter.dim() == 2 else parameter.data.flip(0)


def _switch_flag(parameter: Tensor) -> None:
    parameter.requires_grad_(not parameter.requires_grad)


#: For each name: a change of each parameter before a forward.
CHANGES: dict[str, Callable[[Tensor], object]] = {
    "nothing": lambda _: None,
    "in place": _add_in_place,
    "data": _set_data,
    "transposed": _transpose,
    "flags": _switch_flag,
}
_MODES = {
    "training": torch.enable_grad,
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
}


def steps_of_training() -> st.SearchStrategy[list[Step]]:
    """Draw steps. Each chunk has two rows or more, for batch norm: 4 rows leave a device idle."""
    step = st.tuples(
        st.sampled_from([*_MODES]), st.sampled_from([*CHANGES]), st.sampled_from([6, 9, 4])
    )
    return st.lists(step, min_size=2, max_size=4)


def run_steps(
    devices: Sequence[torch.device],
    name: str,
    steps: Sequence[Step],
    **options: Any,
) -> list[Any]:
    """Return for each step the outputs, the gradient of the input and the state of the module."""
    with devices[0]:
        module = MODULES[name]()
    torch.accelerator.synchronize(devices[0])  # Late kernels may draw numbers of the CPU.
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            # The numbers of the CPU: some devices draw other numbers after the same seed.
            parameter.copy_(torch.randn(parameter.shape))
    wrapper = impl.DataParallel(module, devices, **options)
    optimizer = torch.optim.SGD(wrapper.parameters(), lr=0.1)
    return [_run(wrapper, optimizer, step, devices[0]) for step in steps]


def _run(
    wrapper: Any, optimizer: torch.optim.Optimizer, step: Step, device: torch.device
) -> tuple[Any, ...]:
    mode, change, rows = step
    with torch.no_grad():
        for parameter in wrapper.parameters():
            CHANGES[change](parameter)
    x = torch.rand(rows, 2).to(device).requires_grad_()
    with _MODES[mode]():
        y = wrapper(x)
    if mode == "training":
        y.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    state = {name: value.tolist() for name, value in wrapper.state_dict().items()}
    return y.tolist(), None if x.grad is None else x.grad.tolist(), state
