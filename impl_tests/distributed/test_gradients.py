"""impl/distributed/gradients.py: collectives during backward."""

from impl_tests.samples import run_python

#: Prints the collectives of one backward of a module with buffers.
PROGRAM = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile
from impl.distributed import DataParallel

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
net = DataParallel(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
out = net(torch.ones(4, 2))
with profile(activities=[ProfilerActivity.CPU]) as recorded:
    out.sum().backward()
print(sorted({each.name for each in recorded.events() if each.name.startswith("c10d::")}))
dist.destroy_process_group()
"""


def test_backward_broadcasts_no_buffers(tmp_path):
    """A broadcast would change buffers that the graph has saved: PyTorch 2.11 then raises."""
    completed = run_python(PROGRAM, str(tmp_path / "store"))
    assert completed.stdout == "['c10d::allreduce_']\n", completed.stderr
