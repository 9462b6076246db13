"""impl/_processes.py: the end of a process that has summed gradients."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Seconds; one process imports torch and computes next to nothing.
TIME_LIMIT = 120
#: A rank whose main thread has its sum, and ends, while who gave it is still at it.
PROGRAM = """
import sys, time
import torch
import torch.distributed as dist
from torch.futures import Future
from impl._processes import ranks_of

def set_result(self, result, settle=Future.set_result):
    settle(self, result)
    for _ in range(200):
        time.sleep(0.005)
    print("given", flush=True)

Future.set_result = set_result
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
ranks = ranks_of(None, torch.device("cpu"))
print(ranks.begin_sum(torch.ones(1)).wait().item(), flush=True)
dist.destroy_process_group()
"""


def test_the_end_waits_for_who_gives_a_sum(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["1.0", "given"]
