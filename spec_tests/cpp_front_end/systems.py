"""Training runs on the C++ front end and on packages with the layout of torch.nn.parallel."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from hypothesis import strategies as st
from torch import Tensor

from spec_tests.cpp_front_end import modules
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.environment.target import Target
from spec_tests.harness.environment.topology import Topology

Devices: TypeAlias = Sequence[torch.device]
#: A function of the kind of a module, a seed and a device. It returns the module and a function
#: that runs the module for a batch on several devices.
System: TypeAlias = Callable[
    [str, int, torch.device], tuple[Any, Callable[[Tensor, Devices], Tensor]]
]


def cpp_system(front_end: Any) -> System:
    """Return the system that calls ``data_parallel`` of the C++ front end."""

    def build(kind: str, seed: int, device: torch.device) -> Any:
        module = modules.make_cpp_module(front_end, kind, seed, device)
        return module, lambda batch, to: front_end.data_parallel(module, batch, to, None, 0)

    return build


def python_system(target: Target) -> System:
    """Return the system that calls ``data_parallel`` of ``target``."""

    def build(kind: str, seed: int, device: torch.device) -> Any:
        module = modules.make_module(kind, seed, device)
        return module, partial(target.data_parallel.data_parallel, module)

    return build


def system_of_one_parameter_buckets(target: Target) -> System:
    """Return the system that calls ``replicate`` of ``target`` with ``buffer_size=1``.

    A bucket is a list of tensors that are copied and summed together. Here it has one parameter.
    """

    def build(kind: str, seed: int, device: torch.device) -> Any:
        module = modules.make_module(kind, seed, device)

        def call(batch: Tensor, devices: Devices) -> Tensor:
            chunks = target.scatter_gather.scatter(batch, devices)
            used = devices[: len(chunks)]
            replicas = target.replicate.replicate(module, used, buffer_size=1)
            outputs = target.parallel_apply.parallel_apply(replicas, chunks, devices=used)
            result: Tensor = target.scatter_gather.gather(outputs, devices[0])
            return result

        return module, call

    return build


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

    def outputs(self, system: System, topology: Topology) -> Any:
        """Return a snapshot of the outputs of ``system`` for the batch."""
        _, call = system(self.kind, self.seed, topology.device(0))
        return _snapshot({"outputs": call(self._batch(topology), topology.take(self.devices))})

    def gradients(self, system: System, topology: Topology) -> Any:
        """Return the gradients of the batch, the parameters, and the buffers that require grad."""
        module, call = system(self.kind, self.seed, topology.device(0))
        batch = self._batch(topology)
        torch.autograd.backward(_loss(call(batch, topology.take(self.devices))))
        grads = {name: tensor.grad for name, tensor in _trainable(module).items()}
        return _snapshot({**grads, "batch": batch.grad})

    def trained_parameters(self, system: System, topology: Topology) -> Any:
        """Return the parameters after three steps of SGD."""
        module, call = system(self.kind, self.seed, topology.device(0))
        parameters = _trainable(module)
        unique = list({id(tensor): tensor for tensor in parameters.values()}.values())
        optimizer = torch.optim.SGD(unique, lr=0.05, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            outputs = call(self._batch(topology), topology.take(self.devices))
            torch.autograd.backward(_loss(outputs))
            optimizer.step()
        return _snapshot(parameters)

    def _batch(self, topology: Topology) -> Tensor:
        _, shape = modules.KINDS[self.kind]
        generator = torch.Generator().manual_seed(self.seed)
        batch = torch.randn(self.rows, *shape, generator=generator)
        return batch.to(topology.device(0)).requires_grad_()

    def __repr__(self) -> str:
        return (
            f"data_parallel(make_module({self.kind!r}, {self.seed}, devices[0]), "
            f"{self.rows} rows, devices[:{self.devices}])"
        )


def training_runs() -> st.SearchStrategy[TrainingRun]:
    """Draw runs of all kinds. Shrinks to one row through one linear layer on one device."""
    return st.builds(
        TrainingRun,
        kind=st.sampled_from(list(modules.KINDS)),
        rows=st.integers(1, 9),
        devices=st.integers(1, 4),
        seed=st.integers(0, 99),
    )


def _loss(outputs: Tensor) -> Tensor:
    # With equal weights, the gradient through batch norm would be 0.
    weights = torch.linspace(0.5, 1.5, outputs.numel(), device=outputs.device)
    return (outputs.flatten() * weights).square().mean()


def _trainable(module: Any) -> dict[str, Tensor]:
    """Return the tensors of a module that require a gradient, by name."""
    tensors = modules.named_tensors(module)
    return {name: tensor for name, tensor in tensors.items() if tensor.requires_grad}


def _snapshot(tensors: Mapping[str, Tensor | None]) -> Any:
    """Return a snapshot sorted by name, because systems list their tensors in different orders."""
    named = sorted(tensors.items())
    values = {name: None if tensor is None else tensor.detach().cpu() for name, tensor in named}
    return snapshot(values, {}, strides=False)
