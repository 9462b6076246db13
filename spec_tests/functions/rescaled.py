"""Modules whose parameters are changed in place under ``no_grad`` while replicas exist.

The expected result comes from separate modules without replicas, one for each chunk.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, cast

import torch
from torch import Tensor, nn

from spec_tests.harness.compare.outcome import cotangent
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology
from spec_tests.strategies.edge_case_modules import EDGE_CASES
from spec_tests.strategies.layers import WIDTH
from spec_tests.strategies.tensors import TensorSpec

#: Names of the edge-case modules with parameters or buffers that require a gradient. 'tagged' is
#: left out because it computes a different result in a replica, and 'shared_memory' because a
#: change of one parameter changes the other one in the module only.
KINDS = [
    kind
    for kind in EDGE_CASES
    if kind
    not in {"tanh", "shared_buffer", "counter", "assorted", "empty", "tagged", "shared_memory"}
]
#: The names in KINDS of modules that have parameters to optimize.
OPTIMIZED = [kind for kind in KINDS if kind not in ("grad_buffer", "sparse_buffer")]

#: A result of the target, and the expected result.
Pair = tuple[Any, Any]
Model = Callable[[Tensor], Tensor]


class EmbeddingAmongLayers(nn.Module):
    """A module with two linear layers. Layer number ``index`` is an embedding with max_norm."""

    def __init__(self, index: int, *, sparse: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)])
        self.index = index
        self.layers.insert(index, nn.Embedding(8, WIDTH, max_norm=0.5, sparse=sparse))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the linear layers for vectors of the embedding."""
        embedding = self.layers[self.index]
        found: Tensor = embedding(x.detach().abs().long() % 8).sum(1)
        for layer in self.layers:
            if layer is not embedding:
                found = layer(found).tanh()
        return found


class Rescaler(nn.Module):
    """Three linear layers. In evaluation mode, forward divides weight i by 2**i in place."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layers."""
        for depth, layer in enumerate(self.layers):
            if not self.training:
                with torch.no_grad():
                    cast(Tensor, layer.weight).div_(2**depth)
            x = layer(x).tanh()
        return x


class Product(nn.Module):
    """A module that multiplies the input by three parameters, the factors."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = nn.ParameterList([torch.ones(WIDTH) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        """Return the product."""
        return reduce(torch.mul, self.factors, x)


def make_evaluating_rescaler() -> nn.Module:
    """Return a Rescaler in evaluation mode."""
    return Rescaler().eval()


def gradient_penalty(model: Model, x: Tensor) -> Tensor:
    """Return the square of the gradient with respect to ``x``. The result is differentiable."""
    x = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return gradient.square()


def run_parallel_and_separate(
    target: Target,
    topology: Topology,
    make_module: Callable[[], nn.Module],
    slots: Sequence[int],
    *,
    function: Callable[[Model, Tensor], Tensor] = nn.Module.__call__,
) -> Pair:
    """Return the results of DataParallel, and of separate modules that get one chunk each.

    Args:
        target: The target.
        topology: The devices.
        make_module: Builds the module.
        slots: The numbers of the devices in the topology.
        function: Computes the output, given a model and its input rows.
    """
    devices = topology.take(slots)
    parallel, *separate = [_make_seeded(make_module).to(devices[0]) for _ in range(1 + len(slots))]
    rows = TensorSpec((2 * len(slots), WIDTH), slot=slots[0]).build(topology)
    found = function(target.data_parallel.DataParallel(parallel, devices), rows)
    chunks = zip(separate, rows.chunk(len(slots)), strict=True)
    expected = torch.cat([function(module, chunk) for module, chunk in chunks])
    return _collect_results(found, [parallel]), _collect_results(expected, separate)


def run_halving_each_parameter(
    target: Target, topology: Topology, kind: str, slots: Sequence[int]
) -> list[Pair]:
    """Return a pair of results for each parameter and each buffer that requires a gradient.

    The results are those of DataParallel and of separate modules, if a hook halves this tensor.
    """
    names = _names_of_differentiable_tensors(_make_seeded(partial(_make_sequence, kind)))
    return [
        run_parallel_and_separate(
            target, topology, partial(_make_sequence, kind, halved_parameter=name), slots
        )
        for name in names
    ]


def run_after_optimizer_step(
    target: Target, topology: Topology, kind: str, slots: Sequence[int]
) -> Pair:
    """Return the results of replicas, and of separate modules, after an optimizer step.

    The step runs on the replicated module, after ``replicate``. Replica 0 shares the parameters
    of this module, and the other replicas keep copies of the old parameters. So the same step
    also runs on the first separate module, and the other separate modules keep their parameters.
    """
    devices = topology.take(slots)
    make_module = partial(_make_sequence, kind)
    parallel, *separate = [_make_seeded(make_module).to(devices[0]) for _ in range(1 + len(slots))]
    replicas = target.replicate.replicate(parallel, devices)
    for module in (parallel, separate[0]):
        _run_optimizer_step(module)
    rows = TensorSpec((2, WIDTH), slot=slots[0]).build(topology)
    pairs = zip(replicas, devices, strict=True)
    found = [replica(rows.to(device)).to(devices[0]) for replica, device in pairs]
    expected = [module(rows) for module in separate]
    return _collect_results(torch.cat(found), [parallel]), _collect_results(
        torch.cat(expected), separate
    )


def _make_sequence(kind: str, *, halved_parameter: str | None = None) -> nn.Module:
    # The hook is on a parent, because replicas of some modules lose the hooks of the module.
    module = nn.Sequential(EDGE_CASES[kind]())
    if halved_parameter is not None:
        module.register_forward_pre_hook(partial(_halve_parameter, halved_parameter))
    return module


def _halve_parameter(name: str, module: nn.Module, *_: object) -> None:
    with torch.no_grad():
        _get_tensor(module, name).mul_(0.5)


def _run_optimizer_step(module: nn.Module) -> None:
    parameters = list(module.parameters())
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(parameters, lr=0.25).step()


def _collect_results(output: Tensor, modules: Sequence[nn.Module]) -> Any:
    """Return the output, gradients summed over ``modules``, and the first module's tensors."""
    leaves = [
        [_get_tensor(module, name) for name in _names_of_differentiable_tensors(module)]
        for module in modules
    ]
    flat = [leaf for row in leaves for leaf in row]
    gradients = torch.autograd.grad(output, flat, cotangent(output), allow_unused=True)
    count = len(leaves[0])
    sums = [_sum_gradients(gradients[index::count]) for index in range(count)]
    tensors = [output, *sums, *leaves[0]]
    values = [tensor if tensor is None else tensor.detach().cpu() for tensor in tensors]
    return snapshot(values, {}, strides=False)


def _sum_gradients(gradients: Sequence[Tensor | None]) -> Tensor | None:
    dense = [gradient.to_dense() for gradient in gradients if gradient is not None]
    return reduce(torch.add, dense) if dense else None


def _names_of_differentiable_tensors(module: nn.Module) -> list[str]:
    buffers = [name for name, buffer in module.named_buffers() if buffer.requires_grad]
    return [*dict(module.named_parameters()), *buffers]


def _get_tensor(module: nn.Module, name: str) -> Any:
    return reduce(getattr, name.split("."), module)


def _make_seeded(make_module: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # Some modules use deprecated functions, which callers still use.
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(0)
        return make_module()
