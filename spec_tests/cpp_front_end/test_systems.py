"""Outputs, gradients and training are equal in the C++ front end, the reference and the target.

With ``buffer_size=1`` each gradient is summed on its own, as in C++. A *system* is a function that
takes a run and devices, and returns a module and a function that runs it for a batch on devices.
"""

from dataclasses import dataclass
from functools import partial, reduce

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.cpp_front_end import backward
from spec_tests.cpp_front_end.modules import KINDS, make_cpp_module, make_module, named_tensors
from spec_tests.harness.compare import checks
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.conformance.clauses import clause


@dataclass(frozen=True)
class Run:
    """A call or a training of a module of ``kind``; ``seed`` is that of weights and batch."""

    kind: str
    rows: int
    devices: int
    seed: int

    def batch(self, topology):
        generator = torch.Generator().manual_seed(self.seed)
        batch = torch.randn(self.rows, *KINDS[self.kind][1], generator=generator)
        return batch.to(topology.device(0)).requires_grad_()


RUNS = st.builds(
    Run, st.sampled_from([*KINDS]), st.integers(1, 9), st.integers(1, 4), st.integers(0, 99)
)


def cpp_system(front_end, run, topology):
    module = make_cpp_module(front_end, run.kind, run.seed, topology.device(0))
    return module, lambda batch, to: front_end.data_parallel(module, batch, to, None, 0)


def python_system(target, run, topology):
    module = make_module(run.kind, run.seed, topology.device(0))
    return module, partial(target.data_parallel.data_parallel, module)


def system_of_one_parameter_buckets(target, run, topology):
    """Return the system that calls ``replicate`` with ``buffer_size=1``."""
    module = make_module(run.kind, run.seed, topology.device(0))

    def call(batch, devices):
        chunks = target.scatter_gather.scatter(batch, devices)
        used = devices[: len(chunks)]
        replicas = target.replicate.replicate(module, used, buffer_size=1)
        outputs = target.parallel_apply.parallel_apply(replicas, chunks, devices=used)
        return target.scatter_gather.gather(outputs, devices[0])

    return module, call


def loss_of(outputs):
    # With equal weights, the gradient through batch norm would be 0.
    weights = torch.linspace(0.5, 1.5, outputs.numel(), device=outputs.device)
    return (outputs.flatten() * weights).square().mean()


def trainable(module):
    """Return the parameters, and the buffers that require a gradient, by name."""
    return {name: tensor for name, tensor in named_tensors(module).items() if tensor.requires_grad}


def outputs_of(system, run, topology):
    _, call = system(run, topology)
    return {"outputs": call(run.batch(topology), topology.take(run.devices))}


def gradients_of(system, run, topology):
    (module, call), batch = system(run, topology), run.batch(topology)
    loss_of(call(batch, topology.take(run.devices))).backward()
    return {name: each.grad for name, each in trainable(module).items()} | {"batch": batch.grad}


def trained_parameters_of(system, run, topology):
    """Return the parameters after three steps of SGD."""
    module, call = system(run, topology)
    unique = {id(tensor): tensor for tensor in trainable(module).values()}
    optimizer = torch.optim.SGD([*unique.values()], lr=0.05, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(call(run.batch(topology), topology.take(run.devices))).backward()
        optimizer.step()
    return trainable(module)


def check_same(compute, run, topology, front_end, *systems):
    """Fail unless ``compute`` returns the same tensors for each system as for C++."""

    def on_cpu(system):
        # Systems list their tensors in different orders.
        named = sorted(compute(system, run, topology).items())
        values = {name: each if each is None else each.detach().cpu() for name, each in named}
        return snapshot(values, {}, strides=False)

    expected = on_cpu(partial(cpp_system, front_end))
    for system in systems:
        checks.same(on_cpu(system), expected, run, tolerance=checks.LAYER)


@clause("systems.outputs")
@given(run=RUNS)
@example(run=Run("scaled", rows=4, devices=2, seed=0))
def test_outputs_equal_those_of_cpp(front_end, target, baselines, topology, run):
    systems = [partial(python_system, each) for each in (target, *baselines)]
    check_same(outputs_of, run, topology, front_end, *systems)


@clause("systems.gradients")
@given(run=RUNS)
def test_gradients_equal_those_of_cpp(front_end, target, baselines, topology, run):
    systems = [partial(python_system, each) for each in (target, *baselines)]
    check_same(gradients_of, run, topology, front_end, *systems)


@clause("systems.training")
@given(run=RUNS)
@example(run=Run("layers", rows=4, devices=2, seed=0))
def test_trained_parameters_equal_those_of_cpp(front_end, target, baselines, topology, run):
    systems = [partial(python_system, each) for each in (target, *baselines)]
    check_same(trained_parameters_of, run, topology, front_end, *systems)


@clause("systems.bucket-gradients")
@given(run=RUNS)
def test_one_parameter_buckets_give_the_gradients_of_cpp(front_end, target, topology, run):
    system = partial(system_of_one_parameter_buckets, target)
    check_same(gradients_of, run, topology, front_end, system)


@clause("systems.early-reduction")
def test_target_reduces_the_last_layer_before_backward_ends(target, topology):
    topology.require(distinct=2)
    devices = topology.take(2)
    module = make_module("layers", 0, devices[0])
    replicas = target.replicate.replicate(module, devices, buffer_size=1)
    passes = [
        backward.run_forward(partial(run_layers, replica), device)
        for replica, device in zip(replicas, devices, strict=True)
    ]
    assert backward.is_reduced_early(module.body[4].weight, *passes)


def run_layers(replica, x, first, last):
    return reduce(lambda value, layer: layer(value), list(replica.body)[first:last], x)
