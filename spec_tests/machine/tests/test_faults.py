"""The option ``--fault``: a target that needs a CUDA build, and faults that the header names."""

import os

import pytest
import torch

from spec_tests.machine.tests.fixtures import ROOT

pytestmark = [pytest.mark.usefixtures("sim"), pytest.mark.slow]


def scatter_by_private_function(tensor, devices=None, chunk_sizes=None, dim=0, streams=None):
    """Scatter with ``torch._C._scatter``, which builds of PyTorch without CUDA lack."""
    ordinals = [torch.device(device).index for device in devices]
    return tuple(torch._C._scatter(tensor, ordinals, chunk_sizes, dim, streams))


@pytest.fixture
def run_clause(fork_server):
    """Return a function that runs a clause's tests and returns the exit status and the output."""

    def run(clause, *options):
        command = [
            "pytest",
            "spec_tests",
            "--accelerator=sim",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
        ]
        command += ["--hypothesis-profile=few", f"--clause={clause}", *options]
        done = fork_server.run(*command, cwd=ROOT, env=os.environ)
        return done.returncode, done.stdout + done.stderr

    return run


def test_only_a_target_that_needs_a_cuda_build_fails_with_the_fault(run_clause):
    clause, fault = "comm.scatter.slices", "--fault=missing-primitives"
    status, text = run_clause(clause, fault)
    assert status == 0, text
    place = f"{__name__}:{scatter_by_private_function.__name__}"
    status, text = run_clause(clause, fault, f"--target-map=comm.scatter={place}")
    assert status == 1, text
    assert f"fail  {clause}" in text
    assert "module 'torch._C' has no attribute '_scatter'" in text


def test_the_header_names_a_fault_of_the_devices(run_clause):
    status, text = run_clause("comm.signatures", "--fault=garbled-peers", "-v")
    assert status == 0
    assert "devices: devices.copies.values: wrong: 64 bytes copied from sim:0 to sim:1" in text


def test_a_wrong_copy_between_devices_fails_a_clause_about_copies(run_clause):
    status, text = run_clause("comm.broadcast.copies", "--fault=garbled-peers")
    assert status == 1, text
    assert "fail  comm.broadcast.copies" in text
