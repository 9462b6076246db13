"""impl.distributed in a process group of one rank: waits for all-reduces."""

from spec_tests.machine.processes import run_program

BEGIN = """
import sys, time
import torch
import torch.distributed as dist
from torch.futures import Future
from impl.distributed.process_group import get_communicator

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
comm = get_communicator(None, torch.device("cpu"))
"""
#: A program whose main thread gets the sum and exits while another thread runs ``set_result``.
EXITS_EARLY = """
def set_result(self, result, original=Future.set_result):
    original(self, result)
    for _ in range(200):
        time.sleep(0.005)
    print("thread finished", flush=True)

Future.set_result = set_result
print(comm.all_reduce_async(torch.ones(1)).wait().item(), flush=True)
"""
#: A program whose back end raises an OSError. PyTorch's back ends raise only RuntimeError.
RAISES_OS_ERROR = """
class Work:
    def wait(self, timeout):
        raise OSError("connection lost")

dist.all_reduce = lambda *args, **kwargs: Work()
try:
    comm.all_reduce_async(torch.ones(1)).wait()
except RuntimeError as error:
    print(error)
"""


def run_in_group(program, folder):
    completed = run_program(f"{BEGIN}{program}\ndist.destroy_process_group()", f"{folder}/store")
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.splitlines()


def test_exit_waits_for_the_thread_that_completes_an_all_reduce(tmp_path):
    assert run_in_group(EXITS_EARLY, tmp_path) == ["1.0", "thread finished"]


def test_future_of_an_all_reduce_raises_any_error_of_the_back_end(tmp_path):
    lines = run_in_group(RAISES_OS_ERROR, tmp_path)
    assert any("seen from rank 0: connection lost" in line for line in lines)
