"""The suite finds historic bugs of targets, and names faults of devices."""

import os

import pytest
import torch
from torch import nn

from spec_tests.harness.conformance import clauses
from spec_tests.harness.tests.fixtures import ROOT

pytestmark = [pytest.mark.usefixtures("sim"), pytest.mark.slow]


def scatter_by_private_function(tensor, devices=None, chunk_sizes=None, dim=0, streams=None):
    """Scatter with ``torch._C._scatter``, which builds of PyTorch without CUDA lack."""
    ordinals = [torch.device(device).index for device in devices]
    return tuple(torch._C._scatter(tensor, ordinals, chunk_sizes, dim, streams))


def reduce_add_into_empty(inputs, destination=None):
    """Add the inputs to uninitialized memory."""
    expected = nn.parallel.comm.reduce_add(inputs, destination)
    if len(inputs) == 1:
        return expected
    total = torch.empty_like(expected)
    for tensor in inputs:
        total += tensor.to(total.device)
    return total


#: For each fault: the options that enable it, the replaced function, the function with the bug,
#: the clause that fails, and a text that the failing run prints. The race detector fills new
#: memory with NaN, too; without --no-races the fault would not be tested.
BUGS = {
    "missing-primitives": (
        ["--fault=missing-primitives"],
        "comm.scatter",
        scatter_by_private_function,
        "comm.scatter.slices",
        "module 'torch._C' has no attribute '_scatter'",
    ),
    "dirty-memory": (
        ["--no-races", "--fault=dirty-memory"],
        "comm.reduce_add",
        reduce_add_into_empty,
        "comm.reduce-add.sum",
        "nan",
    ),
}


@pytest.fixture
def run_clause(fork_server):
    """Return a function that runs a clause's tests and returns the exit status and the output."""

    def run(clause, *options):
        chapter = f"spec_tests/{clauses.load()[clause].chapter}"
        command = ["pytest", chapter, "--accelerator=sim", "-q", "-x", "-p", "no:cacheprovider"]
        command += ["--hypothesis-profile=few", f"--clause={clause}", *options]
        done = fork_server.run(*command, cwd=ROOT, env=os.environ)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("name", BUGS)
def test_only_a_target_with_the_bug_fails_the_clause(run_clause, name):
    options, replaced, function, clause, message = BUGS[name]
    status, text = run_clause(clause, *options)
    assert status == 0, text
    place = f"{function.__module__}:{function.__name__}"
    status, text = run_clause(clause, *options, f"--target-map={replaced}={place}")
    assert status == 1, text
    assert f"fail  {clause}" in text
    assert message in text


def test_the_header_names_a_fault_of_the_devices(run_clause):
    status, text = run_clause("comm.signatures", "--fault=garbled-peers", "-v")
    assert status == 0
    assert "devices: devices.copies.values: wrong: 64 bytes copied from sim:0 to sim:1" in text
