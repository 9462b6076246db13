"""One training run on any of three systems: the C++ front end, the reference, the target."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from spec_tests.cpp_front_end import modules
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology

Devices = Sequence[torch.device]


@dataclass(frozen=True)
class Trainee:
    """A module on some system: its tensors by name, and how to call it on many devices."""

    tensors: dict[str, Tensor]
    call: Callable[[Tensor, Devices], Tensor]


class System(Protocol):
    """Something that runs a module on many devices."""

    def trainee(self, kind: str, seed: int, device: torch.device) -> Trainee:
        """A module of ``kind`` on ``device`` with the weights that ``seed`` draws."""


@dataclass(frozen=True)
class Cpp:
    """``torch::nn::parallel``."""

    front_end: Any

    def trainee(self, kind: str, seed: int, device: torch.device) -> Trainee:
        """See `System`."""
        module = modules.cpp_twin(self.front_end, kind, seed, device)

        def call(inputs: Tensor, devices: Devices) -> Tensor:
            result: Tensor = self.front_end.data_parallel(module, inputs, devices, None, 0)
            return result

        return Trainee(modules.cpp_tensors(module), call)


@dataclass(frozen=True)
class Python:
    """A package laid out like torch.nn.parallel."""

    target: Target

    def trainee(self, kind: str, seed: int, device: torch.device) -> Trainee:
        """See `System`."""
        module = modules.python_twin(kind, seed, device)

        def call(inputs: Tensor, devices: Devices) -> Tensor:
            result: Tensor = self.target.data_parallel.data_parallel(module, inputs, devices)
            return result

        return Trainee(modules.tensors(module), call)


@dataclass(frozen=True)
class BucketEach:
    """A target whose replicate reduces every parameter by itself, as C++ does."""

    target: Target

    def replicas(self, module: nn.Module, devices: Devices) -> list[nn.Module]:
        """A replica a device; the smallest buffer holds one parameter."""
        found: list[nn.Module] = self.target.replicate.replicate(module, devices, buffer_size=1)
        return found

    def trainee(self, kind: str, seed: int, device: torch.device) -> Trainee:
        """See `System`."""
        module = modules.python_twin(kind, seed, device)

        def call(inputs: Tensor, devices: Devices) -> Tensor:
            chunks = self.target.scatter_gather.scatter(inputs, devices)
            used = devices[: len(chunks)]
            replicas = self.replicas(module, used)
            outputs = self.target.parallel_apply.parallel_apply(replicas, chunks, devices=used)
            result: Tensor = self.target.scatter_gather.gather(outputs, devices[0])
            return result

        return Trainee(modules.tensors(module), call)


@dataclass(frozen=True)
class Run:
    """A module, how many rows it is given, and on how many devices."""

    kind: str
    rows: int
    count: int
    seed: int

    def inputs(self, topology: Topology) -> Tensor:
        """A batch on the first device; it requires a gradient."""
        _, shape = modules.KINDS[self.kind]
        generator = torch.Generator().manual_seed(self.seed)
        batch = torch.randn(self.rows, *shape, generator=generator)
        return batch.to(topology.device(0)).requires_grad_()

    def outputs(self, system: System, topology: Topology) -> Any:
        """What the module returns."""
        trainee = system.trainee(self.kind, self.seed, topology.device(0))
        result = trainee.call(self.inputs(topology), topology.take(self.count))
        return _plain({"outputs": result})

    def gradients(self, system: System, topology: Topology) -> Any:
        """The gradients of every parameter, every buffer that requires one, and the batch."""
        trainee = system.trainee(self.kind, self.seed, topology.device(0))
        batch = self.inputs(topology)
        torch.autograd.backward(_loss(trainee.call(batch, topology.take(self.count))))
        found = {name: each.grad for name, each in trainee.tensors.items() if each.requires_grad}
        return _plain({**found, "batch": batch.grad})

    def trained(self, system: System, topology: Topology, *, steps: int = 3) -> Any:
        """The parameters after some steps of SGD."""
        trainee = system.trainee(self.kind, self.seed, topology.device(0))
        learned = {name: each for name, each in trainee.tensors.items() if each.requires_grad}
        unique = list({id(each): each for each in learned.values()}.values())
        optimizer = torch.optim.SGD(unique, lr=0.05, momentum=0.9)
        for _ in range(steps):
            optimizer.zero_grad()
            outputs = trainee.call(self.inputs(topology), topology.take(self.count))
            torch.autograd.backward(_loss(outputs))
            optimizer.step()
        return _plain(learned)

    def __repr__(self) -> str:
        return (
            f"data_parallel(modules.python_twin({self.kind!r}, seed={self.seed}, devices[0]), "
            f"{self.rows} rows, devices[:{self.count}])"
        )


def runs() -> st.SearchStrategy[Run]:
    """Runs of every module. Shrinks to one row through one linear layer on one device."""
    return st.builds(
        Run,
        kind=st.sampled_from(sorted(modules.KINDS, key=list(modules.KINDS).index)),
        rows=st.integers(1, 9),
        count=st.integers(1, 4),
        seed=st.integers(0, 99),
    )


def _loss(outputs: Tensor) -> Tensor:
    # Weights that differ keep the gradient of a normalised output from vanishing.
    weights = torch.linspace(0.5, 1.5, outputs.numel(), device=outputs.device)
    return (outputs.flatten() * weights).square().mean()


def _plain(found: Mapping[str, Tensor | None]) -> Any:
    """A snapshot of the values alone, in an order that no system decides."""
    named = sorted(found.items())
    values = {name: each if each is None else each.detach().cpu() for name, each in named}
    return snapshot(values, {}, strides=False)
