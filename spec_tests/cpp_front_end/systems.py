"""Training runs on three systems: the C++ front end, the reference and the target."""

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
class ParallelModule:
    """A module and the function that runs it on several devices.

    Args:
        tensors: The parameters and buffers of the module, by name.
        call: Takes a batch and a list of devices, and returns the outputs.
    """

    tensors: dict[str, Tensor]
    call: Callable[[Tensor, Devices], Tensor]


class System(Protocol):
    """An implementation of data parallelism."""

    def build_module(self, kind: str, seed: int, device: torch.device) -> ParallelModule:
        """Return a module of ``kind`` on ``device``, with random weights from ``seed``."""


@dataclass(frozen=True)
class CppSystem:
    """The C++ front end, ``torch::nn::parallel``."""

    front_end: Any

    def build_module(self, kind: str, seed: int, device: torch.device) -> ParallelModule:
        """Return a module; see `System`."""
        module = modules.build_cpp_module(self.front_end, kind, seed, device)

        def call(inputs: Tensor, devices: Devices) -> Tensor:
            result: Tensor = self.front_end.data_parallel(module, inputs, devices, None, 0)
            return result

        return ParallelModule(modules.named_cpp_tensors(module), call)


@dataclass(frozen=True)
class PythonSystem:
    """A package with the layout of torch.nn.parallel."""

    target: Target

    def build_module(self, kind: str, seed: int, device: torch.device) -> ParallelModule:
        """Return a module; see `System`."""
        module = modules.build_python_module(kind, seed, device)

        def call(inputs: Tensor, devices: Devices) -> Tensor:
            result: Tensor = self.target.data_parallel.data_parallel(module, inputs, devices)
            return result

        return ParallelModule(modules.named_tensors(module), call)


@dataclass(frozen=True)
class OneParameterBuckets:
    """A package whose ``replicate`` is called with ``buffer_size=1``.

    A bucket is a list of tensors that are copied and summed together. Here it has one parameter.
    """

    target: Target

    def replicate(self, module: nn.Module, devices: Devices) -> list[nn.Module]:
        """Return one replica per device, with one bucket per parameter."""
        found: list[nn.Module] = self.target.replicate.replicate(module, devices, buffer_size=1)
        return found

    def build_module(self, kind: str, seed: int, device: torch.device) -> ParallelModule:
        """Return a module; see `System`."""
        module = modules.build_python_module(kind, seed, device)

        def call(inputs: Tensor, devices: Devices) -> Tensor:
            chunks = self.target.scatter_gather.scatter(inputs, devices)
            used = devices[: len(chunks)]
            replicas = self.replicate(module, used)
            outputs = self.target.parallel_apply.parallel_apply(replicas, chunks, devices=used)
            result: Tensor = self.target.scatter_gather.gather(outputs, devices[0])
            return result

        return ParallelModule(modules.named_tensors(module), call)


@dataclass(frozen=True)
class TrainingRun:
    """A training run.

    Args:
        kind: Kind of module, a key of `modules.KINDS`.
        rows: Number of rows of the batch.
        devices: Number of devices.
        seed: Seed of the weights and of the batch.
    """

    kind: str
    rows: int
    devices: int
    seed: int

    def inputs(self, topology: Topology) -> Tensor:
        """Return a batch that requires a gradient, on the first device."""
        _, shape = modules.KINDS[self.kind]
        generator = torch.Generator().manual_seed(self.seed)
        batch = torch.randn(self.rows, *shape, generator=generator)
        return batch.to(topology.device(0)).requires_grad_()

    def outputs(self, system: System, topology: Topology) -> Any:
        """Return a snapshot of the outputs of ``system`` for the batch."""
        module = system.build_module(self.kind, self.seed, topology.device(0))
        result = module.call(self.inputs(topology), topology.take(self.devices))
        return _sorted_snapshot({"outputs": result})

    def gradients(self, system: System, topology: Topology) -> Any:
        """Return the gradients of the batch, the parameters, and the buffers that require grad."""
        module = system.build_module(self.kind, self.seed, topology.device(0))
        batch = self.inputs(topology)
        torch.autograd.backward(_loss(module.call(batch, topology.take(self.devices))))
        grads = {name: tensor.grad for name, tensor in _trainable(module).items()}
        return _sorted_snapshot({**grads, "batch": batch.grad})

    def trained_parameters(self, system: System, topology: Topology) -> Any:
        """Return the parameters after three steps of SGD."""
        module = system.build_module(self.kind, self.seed, topology.device(0))
        parameters = _trainable(module)
        unique = list({id(tensor): tensor for tensor in parameters.values()}.values())
        optimizer = torch.optim.SGD(unique, lr=0.05, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            outputs = module.call(self.inputs(topology), topology.take(self.devices))
            torch.autograd.backward(_loss(outputs))
            optimizer.step()
        return _sorted_snapshot(parameters)

    def __repr__(self) -> str:
        return (
            f"data_parallel(build_python_module({self.kind!r}, {self.seed}, devices[0]), "
            f"{self.rows} rows, devices[:{self.devices}])"
        )


def training_runs() -> st.SearchStrategy[TrainingRun]:
    """Draw runs of all kinds. Shrinks to one row through one linear layer on one device."""
    return st.builds(
        TrainingRun,
        kind=st.sampled_from(sorted(modules.KINDS, key=list(modules.KINDS).index)),
        rows=st.integers(1, 9),
        devices=st.integers(1, 4),
        seed=st.integers(0, 99),
    )


def _loss(outputs: Tensor) -> Tensor:
    # With equal weights, the gradient through batch norm would be 0.
    weights = torch.linspace(0.5, 1.5, outputs.numel(), device=outputs.device)
    return (outputs.flatten() * weights).square().mean()


def _trainable(module: ParallelModule) -> dict[str, Tensor]:
    """Return the tensors of a module that require a gradient, by name."""
    return {name: tensor for name, tensor in module.tensors.items() if tensor.requires_grad}


def _sorted_snapshot(tensors: Mapping[str, Tensor | None]) -> Any:
    """Return a snapshot sorted by name, because systems list their tensors in different orders."""
    named = sorted(tensors.items())
    values = {name: None if tensor is None else tensor.detach().cpu() for name, tensor in named}
    return snapshot(values, {}, strides=False)
