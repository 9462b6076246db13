"""impl and the suite run in a CUDA build without a GPU, with 1, 2 and 8 devices."""

import json
import os
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.skipif(
    torch.version.cuda is None or "CUDA_BUILD_DEVICES" not in os.environ,
    reason="not-run: needs a CUDA build without a GPU: tox -e cuda-build",
)


def run(*args, count):
    """Run ``python -m *args`` on ``count`` devices; return the finished process."""
    environment = {**os.environ, "CUDA_BUILD_DEVICES": str(count)}
    command = [sys.executable, "-W", "ignore", "-m", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("count", [1, 2, 8])
def test_impl_places_replicas_and_outputs_like_torch(count):
    process = run("impl_tests.helpers.cuda_placement", count=count)
    expected, found = json.loads(process.stdout)
    assert found == expected
    default, *_ = found
    assert default[:3] == [list(range(count)), 0, "cuda:0"]
    assert default[-2:] == ["cuda:0", True]


def test_doctor_names_the_devices():
    process = run("spec_tests.cli.main", "doctor", "--accelerator", "cuda", count=2)
    assert "2 devices: cuda:0, cuda:1" in process.stdout
    assert process.returncode >= 0
