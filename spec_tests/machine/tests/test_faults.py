"""The option ``--fault``: a target that needs a CUDA build, and faults that the header names."""

import pytest

pytestmark = [pytest.mark.usefixtures("sim"), pytest.mark.slow]

#: A module whose scatter calls ``torch._C._scatter``, which builds of PyTorch without CUDA lack.
SCATTER = """
import torch
def scatter(tensor, devices=None, chunk_sizes=None, dim=0, streams=None):
    ordinals = [torch.device(device).index for device in devices]
    return tuple(torch._C._scatter(tensor, ordinals, chunk_sizes, dim, streams))
"""


@pytest.fixture
def run(run_command):
    """Return a function that runs a clause on impl with a fault."""

    def call(clause, fault, *options):
        command = ["run", "impl", "--accelerator=sim", f"--clause={clause}", *options]
        return run_command(*command, "--", "--hypothesis-profile=few", f"--fault={fault}")

    return call


def test_only_a_target_that_needs_a_cuda_build_fails_with_the_fault(run, write_package):
    write_package("needs_cuda", comm=SCATTER)
    clause, fault = "comm.scatter.slices", "missing-primitives"
    done = run(clause, fault)
    assert done.returncode == 0, done.stdout
    done = run(clause, fault, "--target-map=comm.scatter=needs_cuda.comm:scatter")
    assert done.returncode == 1, done.stdout
    assert f"fail  {clause}" in done.stdout
    assert "module 'torch._C' has no attribute '_scatter'" in done.stdout


def test_the_header_names_a_fault_of_the_devices_and_it_fails_a_clause_about_copies(run):
    done = run("comm.broadcast.copies", "garbled-peers")
    assert done.returncode == 1, done.stdout
    copied = "64 bytes copied from sim:0 to sim:1"
    assert f"devices: devices.copies.values: wrong: {copied}" in done.stdout
    assert "fail  comm.broadcast.copies" in done.stdout
