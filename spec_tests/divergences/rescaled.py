"""Modules whose parameters are changed in place under ``no_grad`` while replicas of them live.

What must come of it is worked out on modules of the same kind, one a replica, each by itself.
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
from spec_tests.strategies.edge_case_modules import ZOO
from spec_tests.strategies.layers import WIDTH
from spec_tests.strategies.tensors import TensorSpec

#: The kinds of the zoo with something to change, but for the one that computes something else in
#: a replica than by itself.
KINDS = [
    kind
    for kind in ZOO
    if kind not in {"tanh", "shared_buffer", "counter", "assorted", "empty", "tagged"}
]
#: Those with parameters, which an optimizer takes.
OPTIMIZED = [kind for kind in KINDS if kind != "grad_buffer"]

#: What comes of a change, and what must.
Pair = tuple[Any, Any]
Model = Callable[[Tensor], Tensor]


class Looking(nn.Module):
    """Layers and, in one place among them, an embedding whose rows are kept short."""

    def __init__(self, index: int, *, sparse: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)])
        self.index = index
        self.layers.insert(index, nn.Embedding(8, WIDTH, max_norm=0.5, sparse=sparse))

    def forward(self, x: Tensor) -> Tensor:
        """What is looked up, passed through the layers in order."""
        embedding = self.layers[self.index]
        found: Tensor = embedding(x.detach().abs().long() % 8).sum(1)
        for layer in self.layers:
            if layer is not embedding:
                found = layer(found).tanh()
        return found


class Rescaling(nn.Module):
    """Layers each of which is scaled down before it is used, if the module evaluates."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        """The layers in order."""
        for depth, layer in enumerate(self.layers):
            if not self.training:
                with torch.no_grad():
                    cast(Tensor, layer.weight).div_(2**depth)
            x = layer(x).tanh()
        return x


class Product(nn.Module):
    """The row times three parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = nn.ParameterList([torch.ones(WIDTH) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        """The parameters in order."""
        return reduce(torch.mul, self.factors, x)


def rescaling() -> nn.Module:
    """One that evaluates."""
    return Rescaling().eval()


def penalty(model: Model, x: Tensor) -> Tensor:
    """The squared slopes of a model, to be differentiated again."""
    x = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return slope.square()


def compared(
    target: Target,
    topology: Topology,
    make: Callable[[], nn.Module],
    slots: Sequence[int],
    *,
    function: Callable[[Model, Tensor], Tensor] = nn.Module.__call__,
) -> Pair:
    """A function of DataParallel, and of modules that are given a chunk each."""
    devices = topology.take(slots)
    spread, *alone = [_seeded(make).to(devices[0]) for _ in range(1 + len(slots))]
    rows = TensorSpec((2 * len(slots), WIDTH), slot=slots[0]).build(topology)
    found = function(target.data_parallel.DataParallel(spread, devices), rows)
    chunks = zip(alone, rows.chunk(len(slots)), strict=True)
    expected = torch.cat([function(module, chunk) for module, chunk in chunks])
    return _facts(found, [spread]), _facts(expected, alone)


def halved(target: Target, topology: Topology, kind: str, slots: Sequence[int]) -> list[Pair]:
    """Modules that halve one parameter at the beginning of their forward, each one in turn."""
    names = _names(_seeded(partial(_in_sequence, kind)))
    return [
        compared(target, topology, partial(_in_sequence, kind, halves=name), slots)
        for name in names
    ]


def stepped(target: Target, topology: Topology, kind: str, slots: Sequence[int]) -> Pair:
    """Replicas that are used after the parameters of their module have been optimized."""
    devices = topology.take(slots)
    make = partial(_in_sequence, kind)
    spread, *alone = [_seeded(make).to(devices[0]) for _ in range(1 + len(slots))]
    replicas = target.replicate.replicate(spread, devices)
    for module in (spread, alone[0]):
        _step(module)
    rows = TensorSpec((2, WIDTH), slot=slots[0]).build(topology)
    pairs = zip(replicas, devices, strict=True)
    found = [replica(rows.to(device)).to(devices[0]) for replica, device in pairs]
    expected = [module(rows) for module in alone]
    return _facts(torch.cat(found), [spread]), _facts(torch.cat(expected), alone)


def _in_sequence(kind: str, *, halves: str | None = None) -> nn.Module:
    # Some modules make replicas without their hooks, but none makes those of modules above it.
    module = nn.Sequential(ZOO[kind]())
    if halves is not None:
        module.register_forward_pre_hook(partial(_halve, halves))
    return module


def _halve(name: str, module: nn.Module, *_: object) -> None:
    with torch.no_grad():
        _reach(module, name).mul_(0.5)


def _step(module: nn.Module) -> None:
    parameters = list(module.parameters())
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(parameters, lr=0.25).step()


def _facts(output: Tensor, modules: Sequence[nn.Module]) -> Any:
    """The output, its slopes summed over ``modules``, and the first one's parameters."""
    leaves = [[_reach(module, name) for name in _names(module)] for module in modules]
    flat = [leaf for row in leaves for leaf in row]
    slopes = torch.autograd.grad(output, flat, cotangent(output), allow_unused=True)
    count = len(leaves[0])
    sums = [_sum(slopes[index::count]) for index in range(count)]
    found = [output, *sums, *leaves[0]]
    plain = [each if each is None else each.detach().cpu() for each in found]
    return snapshot(plain, {}, strides=False)


def _sum(slopes: Sequence[Tensor | None]) -> Tensor | None:
    dense = [slope.to_dense() for slope in slopes if slope is not None]
    return reduce(torch.add, dense) if dense else None


def _names(module: nn.Module) -> list[str]:
    buffers = [name for name, buffer in module.named_buffers() if buffer.requires_grad]
    return [*dict(module.named_parameters()), *buffers]


def _reach(module: nn.Module, name: str) -> Any:
    return reduce(getattr, name.split("."), module)


def _seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # Some kinds are deprecated; callers still have them.
        warnings.simplefilter("ignore")
        torch.default_generator.manual_seed(0)
        return make()
