"""Outputs and inputs on the CPU, which the reference refuses or warns of: FN-3 and FN-4."""

import warnings

import pytest
import torch
from torch import nn

from spec_tests import checks
from spec_tests.machine.clauses import clause
from spec_tests.strategies.small_modules import Calls
from spec_tests.strategies.tensors import counting

CPUS = {"string": "cpu", "string-with-index": "cpu:0", "device": torch.device("cpu")}


def on_cpu(_, rows):
    """Return twice the rows, and their number, both on the CPU."""
    return (2 * rows).cpu(), torch.tensor(len(rows), device="cpu").reshape(1)


@pytest.mark.parametrize("spelling", ["string-with-index", "device"])
@clause("divergences.FN-3.any-spelling-of-the-cpu")
def test_gather_function_accepts_every_spelling_of_the_cpu(target, topology, spelling):
    chunks = [counting((2, 2), torch.float32, device) for device in topology.take(2)]
    joined = target.functions.Gather.apply(CPUS[spelling], 0, *chunks)
    checks.same(joined, torch.cat([chunk.cpu() for chunk in chunks]))
    assert joined.device.type == "cpu"


@pytest.mark.parametrize("cpu", CPUS.values(), ids=CPUS.keys())
@clause("divergences.FN-3.any-spelling-of-the-cpu")
def test_the_output_device_may_be_the_cpu(target, topology, cpu):
    module = nn.Linear(2, 2, device=topology.device(0))
    rows = counting((4, 2), torch.float32, topology.device(0))
    devices = topology.take(2)
    model = target.data_parallel.DataParallel(module, devices, output_device=cpu)
    called = target.data_parallel.data_parallel(module, rows, devices, output_device=cpu)
    assert [model(rows).device.type, called.device.type] == ["cpu"] * 2


@clause("divergences.FN-3.no-warning-without-minus-one")
def test_backward_to_a_cpu_input_emits_no_warning(target, topology):
    rows = torch.ones((4, 2), requires_grad=True)
    chunks = target.functions.Scatter.apply(topology.take(2), None, 0, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (gradient,) = torch.autograd.grad(chunks, rows, [chunk * 3 for chunk in chunks])
    checks.same(gradient.device.type, "cpu", place="device")
    checks.same(gradient, 3 * rows, place="gradient")


@clause("divergences.FN-4.cpu-outputs-are-gathered")
def test_outputs_on_the_cpu_are_gathered_on_the_cpu(target, topology):
    rows = counting((4, 2), torch.float32, topology.device(0)).requires_grad_()
    doubled, lengths = target.data_parallel.DataParallel(Calls(on_cpu), topology.take(2))(rows)
    (gradient,) = torch.autograd.grad(doubled.sum(), rows)
    checks.same(doubled, 2 * rows)
    assert (lengths.tolist(), gradient.unique().tolist()) == ([2, 2], [2.0])
    assert {doubled.device.type, lengths.device.type} == {"cpu"}


@clause("divergences.FN-4.cpu-outputs-are-gathered")
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_chunks_on_the_cpu_are_joined_with_gradients(target, topology, dim):
    chunks = [torch.ones((2, 2), requires_grad=True) for _ in range(3)]
    joined = target.functions.Gather.apply(topology.device(0), dim, *chunks)
    expected = torch.cat(chunks, dim)
    checks.same(joined, expected)
    gradients = torch.autograd.grad(joined, chunks, 3 * expected.detach())
    assert [gradient.tolist() for gradient in gradients] == [(3 * c).tolist() for c in chunks]
