"""impl in a CUDA build without a GPU, with 1, 2 and 8 devices."""

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
#: A program that prints, for torch.nn and impl and for each list of devices, the attributes of a
#: wrapper, the devices of its replicas, and its output. No kernel runs.
PLACEMENT = """
import json
import impl, torch
from torch import nn

class Identity(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.seen = nn.Parameter(torch.ones(2)), []

    def forward(self, rows):
        self.seen.append(f"{self.weight.device} {rows.device}")
        return rows

def place(library, device_ids):
    module = Identity().to(torch.device("cuda", device_ids[0] if device_ids else 0))
    wrapper, rows = library.DataParallel(module, device_ids), torch.arange(16.0).reshape(8, 2)
    output = wrapper(rows)
    attributes = [wrapper.device_ids, wrapper.output_device, str(wrapper.src_device_obj)]
    return [*attributes, sorted(module.seen), str(output.device), output.cpu().equal(rows)]

last = torch.cuda.device_count() - 1
lists = [None, [last], [last, 0]]
print(json.dumps([[place(library, devices) for devices in lists] for library in (nn, impl)]))
"""


@pytest.mark.parametrize("count", [1, 2, 8])
def test_impl_places_replicas_and_outputs_like_torch(count):
    environment = {**os.environ, "CUDA_BUILD_DEVICES": str(count)}
    command = [sys.executable, "-W", "ignore", "-c", PLACEMENT]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    expected, found = json.loads(run.stdout)
    assert found == expected
    default, *_ = found
    assert default[:3] == [list(range(count)), 0, "cuda:0"]
    assert default[-2:] == ["cuda:0", True]
