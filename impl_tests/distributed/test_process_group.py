"""impl/distributed/process_group.py: who waits for the sums of gradients."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Seconds; one process imports torch and computes next to nothing.
TIME_LIMIT = 120
BEGIN = """
import sys, time
import torch
import torch.distributed as dist
from torch.futures import Future
from impl.distributed.process_group import ranks_of

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
ranks = ranks_of(None, torch.device("cpu"))
"""
#: The main thread has its sum, and ends, while who gave it is still at it.
ENDS_EARLY = """
def set_result(self, result, settle=Future.set_result):
    settle(self, result)
    for _ in range(200):
        time.sleep(0.005)
    print("given", flush=True)

Future.set_result = set_result
print(ranks.begin_sum(torch.ones(1)).wait().item(), flush=True)
"""
#: Not what PyTorch's back ends raise.
FAILS_OTHERWISE = """
class Work:
    def wait(self, timeout):
        raise OSError("the cable is gone")

dist.all_reduce = lambda *args, **kwargs: Work()
try:
    ranks.begin_sum(torch.ones(1)).wait()
except RuntimeError as error:
    print(error)
"""
END = """
dist.destroy_process_group()
"""


def printed(program, folder):
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program + END, str(folder / "store")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_end_waits_for_who_gives_a_sum(tmp_path):
    assert printed(ENDS_EARLY, tmp_path) == ["1.0", "given"]


def test_whatever_is_raised_while_waiting_is_raised_to_who_needs_the_sum(tmp_path):
    found = printed(FAILS_OTHERWISE, tmp_path)
    assert any("seen from rank 0: the cable is gone" in line for line in found)
